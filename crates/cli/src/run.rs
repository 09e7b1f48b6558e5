//! `qfabric run`: any unmodified program under a contract, all its threads, its budget tuned while it runs.
//!
//! ```text
//! hold program ─ admit its pid ─ let it go ─┬─ look now and then ─┐─ ended ─ last look ─ release ─ report
//!                   │ refused: it never ran  └────────────────────┘
//! ```

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use qfabric_client::{Client, ClientError};
use qfabric_daemon::MechanismName;
use qfabric_types::api::{Application, ApplicationRequest, Claim, Covers};
use qfabric_types::{AppId, Contract, JobSource, Quality, ServerCounts};

use crate::connect::{self, Service};
use crate::contract::ContractArgs;
use crate::exit::{Done, Failure, Outcome};
use crate::program::{Running, Waiting};
use crate::{output, profiles};

/// How often the application's row is read while it runs, in the first looks and later: what a report can lose
/// at most, since the daemon forgets an application with its process.
const LOOK_MS: (u32, u32) = (100, 500);
/// Looks at the faster pace: a short run loses little, a long one costs little.
const FIRST_LOOKS: u32 = 50;

const EXAMPLES: &str = "\
Examples: qfabric run --fps 25 -- mpv film.mkv
          qfabric run --period 40ms --class A --max-bandwidth 0.4 --predictor mma:3,12 --report r.json -- ./prog
          qfabric run --mechanism ext --period 40ms --service 10ms --window 1/5 -- ./player

Finds the daemon, or does its work itself while the program runs (needs CAP_SYS_NICE then; ext: root). Ends with the
program's exit code, or 128+n when signal n ended it.";

/// Runs any program under a contract: all its threads, the budget tuned while it runs.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    contract: ContractArgs,
    /// Which mechanism must carry the reservations out; auto: the daemon's, or the one that can what is asked
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(["auto", "deadline", "ext"]))]
    mechanism: String,
    /// Start from this profile of a trial execution: a name under which probe stored it, or a file
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Write what was achieved as JSON; - for stdout
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Take what this host keeps for it, as another host's refusal said it
    #[arg(long, value_name = "HOST:NUMBER")]
    claim: Option<Claim>,
    /// Say nothing at the end
    #[arg(short, long)]
    quiet: bool,
    /// The daemon's socket [default: searched for]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let mut contract = args.contract.contract(&name_of(&args.command))?;
    if let Some(profile) = &args.profile {
        contract.profile = Some(profiles::load(profile)?);
    }
    if let Some(path) = &args.report {
        output::check_writable(path)?;
    }
    let program = Waiting::start(&args.command)?;
    let service = Service::find(args.socket.as_deref(), mechanism(&args.mechanism, &contract))?;
    check_mechanism(&service.client, &args.mechanism)?;
    let request = ApplicationRequest { pid: program.pid(), covers: Covers::Program, contract };
    let admitted = match &args.claim {
        Some(claim) => service.client.claim(claim, &request),
        None => service.client.admit(&request),
    };
    let admitted = admitted.map_err(connect::failure)?;
    let (code, last) = follow(program.go()?, &service.client, admitted)?;
    if let Some(path) = &args.report {
        output::write_json(path, &[Row::of(&last)])?;
    }
    if !args.quiet {
        // Where the terminal is gone, the program's exit code says what there is to say.
        let _ = writeln!(std::io::stderr(), "{}", summary(&last, &service.place()));
    }
    Ok(code)
}

/// The name of a program: its file's name, cut to what a contract may be called.
pub fn name_of(command: &[OsString]) -> String {
    let path = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let name: String = path.to_string_lossy().chars().filter(|c| !c.is_control()).take(64).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// The mechanism that a service of our own would use.
fn mechanism(wanted: &str, contract: &Contract) -> MechanismName {
    match wanted {
        "deadline" => MechanismName::Deadline,
        "ext" => MechanismName::Ext,
        _ if contract.needs().or(contract.reclaiming.beyond_deadline()).is_some() => MechanismName::Ext,
        _ => MechanismName::Auto,
    }
}

fn check_mechanism(client: &Client, wanted: &str) -> Result<(), Failure> {
    if wanted == "auto" {
        return Ok(());
    }
    let status = client.status().map_err(connect::failure)?;
    if status.mechanism == wanted {
        return Ok(());
    }
    let why = status.fallback.map(|why| format!(" ({why})")).unwrap_or_default();
    Err(Failure::unavailable(format!(
        "mechanism {wanted} asked for, the daemon uses {}{why}; set mechanism.name = \"{wanted}\" in its \
         configuration (qfabric doctor says what works here), or stop it: then run brings its own",
        status.mechanism
    )))
}

/// Waits for the end of the program and gives its exit code with what it last was seen to achieve.
fn follow(program: Running, client: &Client, admitted: Application) -> Result<(Done, Application), Failure> {
    let mut last = admitted;
    let id = last.id;
    for look in (0_u32..=FIRST_LOOKS).chain(std::iter::repeat(FIRST_LOOKS)) {
        let ended = program.ended_within(if look < FIRST_LOOKS { LOOK_MS.0 } else { LOOK_MS.1 })?;
        match client.application(id) {
            Ok(application) => last = application,
            // The daemon may be gone or restarting: the program goes on, and we with it.
            Err(error) => tell_once(&error, ended),
        }
        if ended {
            break;
        }
    }
    release(client, id);
    Ok((program.reap()?, last))
}

/// A daemon that saw the end before us has released it already; one that is gone has nothing to release.
fn release(client: &Client, id: AppId) {
    let _ = client.release(id);
}

fn tell_once(error: &ClientError, ended: bool) {
    use std::sync::Once;
    static TOLD: Once = Once::new();
    if !ended {
        TOLD.call_once(|| drop(writeln!(std::io::stderr(), "qfabric: {error}; the program goes on without")));
    }
}

/// The row of the report.
#[derive(serde::Serialize)]
struct Row {
    #[serde(flatten)]
    quality: Quality,
    /// What its servers counted, under a mechanism that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ServerCounts>,
}

impl Row {
    fn of(application: &Application) -> Row {
        let quality = Quality { policy: application.contract.name.clone(), ..application.quality.clone() };
        Row { quality, server: application.server }
    }
}

fn summary(application: &Application, place: &str) -> String {
    let Application { contract, quality, .. } = application;
    let Contract { name, period, .. } = contract;
    let bandwidth = format!("{:.1} % of a CPU reserved on average", 100.0 * quality.mean_bandwidth);
    if let Some(counts) = &application.server {
        return format!("qfabric: {name}: {}, {bandwidth}; by {place}", periods(contract, counts));
    }
    if contract.jobs == JobSource::Consumption {
        return format!("qfabric: {name}: {bandwidth}; by {place}");
    }
    if quality.jobs == 0 {
        return format!("qfabric: {name}: ended before a job was seen; by {place}");
    }
    let of_jobs = |n: f64| format!("{:.1} %", 100.0 * n);
    let missed = of_jobs(quality.misses as f64 / quality.jobs.max(1) as f64);
    let hit = of_jobs(quality.in_target);
    format!(
        "qfabric: {name}: {} jobs every {period}, {missed} late, {hit} in target, {bandwidth}; by {place}",
        quality.jobs
    )
}

/// What became of the server's periods.
fn periods(contract: &Contract, counts: &ServerCounts) -> String {
    let ServerCounts { served, missed, violations, boosts, .. } = counts;
    let window = contract.window.map(|window| format!(" of window {window}")).unwrap_or_default();
    let period = contract.server_period;
    format!(
        "periods of {period}: {served} served, {missed} missed, {violations} violations{window}; {boosts} event boosts"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::application;

    #[test]
    fn a_program_is_called_by_its_file_name() {
        let name = |command: &str| name_of(&[OsString::from(command)]);
        assert_eq!(name("/usr/bin/mpv"), "mpv");
        assert_eq!(name("../a\nb"), "ab");
        assert_eq!(name(".."), "unnamed");
        assert_eq!(name(&"x".repeat(99)).len(), 64);
    }

    #[test]
    fn the_row_of_a_report_is_named_and_has_the_promised_keys() {
        let mut app = application(1, "mpv", 0.25);
        let row = serde_json::to_value(Row::of(&app)).unwrap();
        assert_eq!(row["policy"], "mpv");
        let keys: Vec<_> = row.as_object().unwrap().keys().cloned().collect();
        let promised = "in_target jitter_p99_ns jobs mean_bandwidth mean_error misses policy sd_bandwidth sd_error";
        assert_eq!(keys.join(" "), promised);
        app.server = Some(ServerCounts { served: 99, ..ServerCounts::default() });
        assert_eq!(serde_json::to_value(Row::of(&app)).unwrap()["server"]["served"], 99);
    }

    #[test]
    fn the_summary_of_a_server_counts_its_periods() {
        let mut app = application(1, "player", 0.25);
        app.contract.window = "1/5".parse().ok();
        app.server = Some(ServerCounts { served: 99, missed: 4, boosts: 7, ..ServerCounts::default() });
        let text = summary(&app, "x");
        for part in ["periods of 10 ms: 99 served", "4 missed", "0 violations of window 1/5", "7 event boosts"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }

    #[test]
    fn a_contract_that_needs_ext_brings_ext_where_nothing_else_is_said() {
        let plain = Contract::default();
        let windowed = Contract { window: "1/5".parse().ok(), ..Contract::default() };
        assert_eq!(mechanism("auto", &plain), MechanismName::Auto);
        assert_eq!(mechanism("auto", &windowed), MechanismName::Ext);
        assert_eq!(mechanism("deadline", &windowed), MechanismName::Deadline);
        assert_eq!(mechanism("ext", &plain), MechanismName::Ext);
    }

    #[test]
    fn the_summary_claims_nothing_of_jobs_that_were_not_seen() {
        let mut app = application(1, "mpv", 0.25);
        assert!(summary(&app, "x").contains("100 jobs every 40 ms, 1.0 % late, 90.0 % in target"));
        app.contract.jobs = JobSource::Consumption;
        assert!(!summary(&app, "x").contains("late"));
    }
}
