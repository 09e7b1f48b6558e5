//! `qfabric run`: any unmodified program under a contract, all its threads, its budget tuned while it runs.
//!
//! ```text
//! hold program ─ admit its pid ─ let it go ─┬─ look now and then ─┐─ ended ─ last look ─ release ─ report
//!                   │ refused: it never ran  └────────────────────┘
//! ```
//! With `--after` the program goes first, and is admitted while it runs; refused, it is ended.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use qfabric_client::{Client, ClientError};
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_types::api::{Application, ApplicationRequest, Claim, Covers, FoundRhythm};
use qfabric_types::text::is_plain;
use qfabric_types::{AppId, Contract, JobSource, MechanismName, Nanos, Quality, ServerCounts, Share, ThreadId};

use crate::connect::{self, Service};
use crate::contract::{ContractArgs, mechanisms};
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
          qfabric run --auto -- mpv film.mkv
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
    #[arg(long, default_value_t, value_parser = mechanisms())]
    mechanism: MechanismName,
    /// Start from this profile of a trial execution: a name under which probe stored it, or a file
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Write what was achieved as JSON; - for stdout
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Reserve only once the program has run for this long, such as 500ms: for programs that set up their own scheduling
    /// when they start, which fails under a reservation (cyclictest, GStreamer)
    #[arg(long, value_name = "TIME")]
    after: Option<Nanos>,
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
    let service = Service::find(args.socket.as_deref(), mechanism(args.mechanism, &contract))?;
    check_mechanism(&service.client, args.mechanism)?;
    let request = ApplicationRequest { pid: program.pid(), covers: Covers::Program, contract };
    let admit = || admit(&service.client, &request, args.claim.as_ref());
    let (running, admitted) = match args.after {
        None => {
            let admitted = admit()?;
            (program.go()?, admitted)
        }
        Some(after) => {
            let running = program.go()?;
            if running.ended_within(milliseconds(after))? {
                eprintln!("qfabric: the program ended within {after}, before it was reserved");
                return running.reap();
            }
            (running, admit()?)
        }
    };
    let (code, last, left) = follow(running, &service.client, admitted, args.quiet)?;
    if let (Some(policy), false) = (left, code == Done(0) || args.after.is_some()) {
        eprintln!("{}", own_scheduling(&args.command, code, policy));
    }
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
    let name: String = path.to_string_lossy().chars().filter(|c| is_plain(*c)).take(64).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// The mechanism that a service of our own would use.
fn mechanism(wanted: MechanismName, contract: &Contract) -> MechanismName {
    let needs_ext = contract.needs().or(contract.reclaiming.beyond_deadline()).is_some();
    if wanted == MechanismName::Auto && needs_ext { MechanismName::Ext } else { wanted }
}

fn check_mechanism(client: &Client, wanted: MechanismName) -> Result<(), Failure> {
    if wanted == MechanismName::Auto {
        return Ok(());
    }
    let status = client.status().map_err(connect::failure)?;
    if status.mechanism == wanted.name() {
        return Ok(());
    }
    let why = status.fallback.map(|why| format!(" ({why})")).unwrap_or_default();
    Err(Failure::unavailable(format!(
        "mechanism {wanted} asked for, the daemon uses {}{why}; set mechanism.name = \"{wanted}\" in its \
         configuration (qfabric doctor says what works here), or stop it: then run brings its own",
        status.mechanism
    )))
}

fn admit(client: &Client, request: &ApplicationRequest, claim: Option<&Claim>) -> Result<Application, Failure> {
    let admitted = match claim {
        Some(claim) => client.claim(claim, request),
        None => client.admit(request),
    };
    admitted.map_err(connect::failure)
}

fn milliseconds(time: Nanos) -> u32 {
    u32::try_from(time.get().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// Waits for the end of the program and gives its exit code, what it last was seen to achieve, and the real-time policy
/// that it had chosen itself when it ended, if it had.
fn follow(
    program: Running,
    client: &Client,
    admitted: Application,
    quiet: bool,
) -> Result<(Done, Application, Option<Policy>), Failure> {
    let mut last = admitted;
    let id = last.id;
    for look in (0_u32..=FIRST_LOOKS).chain(std::iter::repeat(FIRST_LOOKS)) {
        let ended = program.ended_within(if look < FIRST_LOOKS { LOOK_MS.0 } else { LOOK_MS.1 })?;
        match client.application(id) {
            Ok(application) => {
                if let Some(news) = rhythm_news(&last, &application).filter(|_| !quiet) {
                    eprintln!("qfabric: {news}");
                }
                last = application;
            }
            // A daemon forgets a program as soon as that has ended, which may be just now.
            Err(_) if ended || program.ended_within(LOOK_MS.0)? => break,
            // The daemon may be gone or restarting: the program goes on, and we with it.
            Err(error) => tell_once(&error),
        }
        if ended {
            break;
        }
    }
    release(client, id);
    // A program that has ended keeps its number, and its policy, until it is reaped.
    let policy = SchedAttr::of(ThreadId(last.pid)).ok().map(|attr| attr.policy);
    let chosen = policy.filter(|policy| [Policy::FIFO, Policy::RR].contains(policy));
    Ok((program.reap()?, last, chosen))
}

/// Why a program that schedules itself may have failed. Those that test whether they may be real-time (rt-tests do) go
/// to SCHED_FIFO and back to what they had; the kernel takes SCHED_DEADLINE from `sched_setattr` alone.
fn own_scheduling(command: &[OsString], code: Done, policy: Policy) -> String {
    let (name, code, policy) = (name_of(command), code.0, policy.name());
    format!(
        "qfabric: {name} failed (exit code {code}) after it had put itself under {policy}. A program that is reserved \
         cannot go back to its former policy by sched_setscheduler: the kernel answers EINVAL.\n\
         try: qfabric run --after 500ms …, which reserves once it has set itself up, or --mechanism ext (Linux 6.19)"
    )
}

/// What became of the period that the daemon looks for, if that changed.
fn rhythm_news(before: &Application, now: &Application) -> Option<String> {
    match (before.rhythm, now.rhythm) {
        (before, Some(FoundRhythm { period, confidence, after })) if before.map(|b| b.period) != Some(period) => {
            let (seconds, percent) = (after.as_f64() / 1e9, 100.0 * confidence);
            Some(format!("auto: period {period} found after {seconds:.1} s (confidence {percent:.0} %)"))
        }
        (Some(lost), None) => {
            let period = lost.period;
            Some(format!("auto: period {period} lost; consumption decides until a period is found again"))
        }
        _ => None,
    }
}

/// A daemon that saw the end before us has released it already; one that is gone has nothing to release.
fn release(client: &Client, id: AppId) {
    let _ = client.release(id);
}

fn tell_once(error: &ClientError) {
    use std::sync::Once;
    static TOLD: Once = Once::new();
    let why = match error {
        ClientError::Refused(_) => "the daemon holds no reservation for it any more".to_owned(),
        other => other.to_string(),
    };
    TOLD.call_once(|| drop(writeln!(std::io::stderr(), "qfabric: {why}; the program goes on without")));
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
    let bandwidth =
        format!("{} reserved on average, {} used", Share::from_f64(quality.mean_bandwidth), application.used);
    let did = match &application.server {
        Some(counts) => periods(contract, counts),
        None => jobs(contract, quality),
    };
    format!("qfabric: {}: {did}; {bandwidth}; by {place}", contract.name)
}

/// What became of its jobs. A job that ended early is no failure: it had more CPU time than it needed.
fn jobs(contract: &Contract, quality: &Quality) -> String {
    let Quality { jobs, misses, in_target, .. } = quality;
    if contract.jobs == JobSource::Consumption {
        return "no period: no jobs to count (--period or --fps names one)".to_owned();
    }
    if *jobs == 0 {
        return "ended before a job was seen".to_owned();
    }
    let late = format!("{misses} of {jobs} jobs late ({:.1} %)", 100.0 * *misses as f64 / *jobs as f64);
    let inside = (in_target * *jobs as f64).round() as u64;
    let early = jobs.saturating_sub(inside + misses);
    format!("{late}, {inside} in the target interval, {early} earlier than it; T {}", contract.period)
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
    use qfabric_types::Nanos;

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
        assert_eq!(mechanism(MechanismName::Auto, &plain), MechanismName::Auto);
        assert_eq!(mechanism(MechanismName::Auto, &windowed), MechanismName::Ext);
        assert_eq!(mechanism(MechanismName::Deadline, &windowed), MechanismName::Deadline);
        assert_eq!(mechanism(MechanismName::Ext, &plain), MechanismName::Ext);
    }

    #[test]
    fn a_period_that_is_found_changes_or_is_lost_is_told_once() {
        let app = |ms: Option<u64>| Application {
            rhythm: ms.map(|ms| FoundRhythm {
                period: Nanos::from_millis(ms),
                confidence: 0.934,
                after: Nanos::from_millis(3_240),
            }),
            ..application(1, "mpv", 0.25)
        };
        let news = |before, now| rhythm_news(&app(before), &app(now)).unwrap_or_default();
        assert_eq!(news(None, Some(40)), "auto: period 40 ms found after 3.2 s (confidence 93 %)");
        assert!(news(Some(40), Some(20)).contains("period 20 ms found"));
        assert!(news(Some(40), None).contains("period 40 ms lost"));
        assert_eq!(news(Some(40), Some(40)) + &news(None, None), "");
    }

    #[test]
    fn the_summary_claims_nothing_of_jobs_that_were_not_seen() {
        let mut app = application(1, "mpv", 0.25);
        let text = summary(&app, "x");
        let jobs = "1 of 100 jobs late (1.0 %), 90 in the target interval, 9 earlier than it; T 40 ms; ";
        assert!(text.contains(jobs), "{text}");
        app.contract.jobs = JobSource::Consumption;
        let text = summary(&app, "x");
        assert!(!text.contains("late") && text.contains("no period: no jobs to count"), "{text}");
        app.quality.mean_bandwidth = 0.15;
        assert!(summary(&app, "x").contains("0.15 CPU reserved on average, 0.125 CPU used"));
    }
}
