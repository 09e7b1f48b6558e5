//! `qfabric run`: runs an unmodified program, with all its threads, under a contract.
//!
//! ```text
//! hold program ─ admit its pid ─ start it ─┬─ read its row ─┐─ ended ─ read last row ─ release ─ report
//!                   │ refused: never runs   └────────────────┘
//! ```
//! With `--after` the program starts first and is admitted while it runs. If it is refused, the program is ended.
//! `held.rs`: the contract over restarts of the daemon.

mod held;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use qfabric_client::{Client, ClientError};
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope, Claim, FoundRhythm, Problem};
use qfabric_types::text::is_plain;
use qfabric_types::{
    AppId, BitRate, Contract, JobSource, MechanismName, Nanos, Quality, ServerCounts, Share, ThreadId,
};

use crate::connect::{self, Service};
use crate::contract::{ContractArgs, mechanisms};
use crate::exit::{Done, Failure, Outcome};
use crate::program::{Running, Waiting};
use crate::{output, profiles};

use held::{Held, Request};

/// Milliseconds between two reads of the application's row, at first and later. A report misses at most this time,
/// because the daemon removes an application when its process ends.
const LOOK_MS: (u32, u32) = (100, 500);
/// Number of reads at the shorter interval, so that the report of a short run misses little and a long run costs
/// little.
const FIRST_LOOKS: u32 = 50;

const EXAMPLES: &str = "\
Examples: qfabric run --fps 25 -- mpv film.mkv
          qfabric run --period 40ms --class A --max-bandwidth 0.4 --predictor mma:3,12 -- ./prog
          qfabric run --auto -- mpv film.mkv
          qfabric run --mechanism ext --period 40ms --service 10ms --window 1/5 -- ./player
          qfabric run --memory 64M --fps 25 -- ./player
          qfabric run --energy save --fps 25 -- ./player
          qfabric run --mechanism dispatcher --period 100ms --service 40ms -- ./player
          qfabric run --fps 25 --report r.json -- ./prog";

/// Runs a program under a contract that reserves CPU time for it.
///
/// Reserves CPU time for all threads of the program and adapts the budget while it runs. Uses the daemon of this host.
/// Without a daemon, `run` does the daemon's work itself while the program runs; this needs CAP_SYS_NICE, and root for
/// the mechanism ext. Ends with the exit code of the program, or with 128+n if signal n ended it. If the contract is
/// refused, ends with 3 and the program never runs. If no mechanism works here, ends with 4: run
/// `qfabric doctor`. If the daemon restarts, the program continues, and `run` asks the new daemon again. To find good
/// values for the options, run `qfabric probe`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    contract: ContractArgs,
    /// Mechanism that must carry the reservations out; ends with 4 if the daemon uses another one
    ///
    /// auto: the mechanism of the daemon; without a daemon, the mechanism that supports the given options. dispatcher:
    /// slots of one CPU, for a fixed service (--service, --fixed); also for programs that are pinned to CPUs.
    #[arg(long, default_value_t, value_parser = mechanisms())]
    mechanism: MechanismName,
    /// Profile of a trial execution to start from: a name that `qfabric probe` stored on this processor and kernel, with
    /// the same parameters (NAME,size=640x480), or a file
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Write the achieved quality as JSON to this file at the end; - is stdout
    ///
    /// One row; one more, before it, for each contract that a restart of the daemon ended.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Reserve only after the program has run for this time, such as 500ms
    ///
    /// For programs that set up their own scheduling when they start, which fails under a reservation (cyclictest,
    /// GStreamer). If the contract is refused, the program is ended.
    #[arg(long, value_name = "TIME")]
    after: Option<Nanos>,
    /// If this host refuses and another one lends, reserve this rate out of a link there, too, such as 2M
    ///
    /// The refusal names the link, and the command of a stream that draws from the rate. On this host a stream reserves
    /// the rate: qfabric net stream add.
    #[arg(long, value_name = "RATE")]
    loan_rate: Option<BitRate>,
    /// Use the loan that this host keeps for the program; the host that refused the program has printed the claim
    #[arg(long, value_name = "HOST:NUMBER")]
    claim: Option<Claim>,
    /// Take CPU time and memory from this joint contract; works on each host of the contract
    ///
    /// `qfabric contract ls` shows the HOST:NUMBER on the host where the contract was applied. If the program needs
    /// more than the contract has, the rest comes from the free capacity. When the contract ends, the program goes on
    /// without a reservation.
    #[arg(long = "contract", value_name = "HOST:NUMBER", conflicts_with = "claim")]
    joint: Option<JointId>,
    /// Hold the deadlines at the lowest clock that suffices
    ///
    /// Limits the clock for the program's threads (uclamp). If the section [energy] of the daemon's configuration
    /// allows it, also limits the clocks of the CPUs, and switches on the power save of wireless cards. If something is
    /// missing on this host, one line says so, and the program runs on. `qfabric status` shows the clock.
    #[arg(long, value_name = "GOAL")]
    energy: Option<EnergyGoal>,
    /// Print no summary at the end, and no found periods
    #[arg(short, long)]
    quiet: bool,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Program to run, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The goal for the clock.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum EnergyGoal {
    /// The lowest clock at which the reservations hold.
    Save,
}

pub(crate) fn run(args: Args) -> Outcome {
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
    let request = ApplicationRequest { pid: program.pid(), covers: ApplicationScope::Program, contract };
    let drawn = args.joint.as_ref().map(Claim::from);
    let admit = || {
        let daemon = connect::daemon_mark(service.client.socket());
        // A host refuses a claim without asking others, so the options of the refused command may be repeated with it.
        let admitted = match (args.claim.as_ref().or(drawn.as_ref()), args.loan_rate) {
            (None, Some(rate)) => service.client.admit_with_rate(&request, rate).map_err(connect::failure)?,
            (claim, _) => admit(&service.client, &request, claim)?,
        };
        Ok::<_, Failure>((admitted, daemon))
    };
    let (running, (admitted, daemon)) = match args.after {
        None => {
            let admitted = admit()?;
            (program.go()?, admitted)
        }
        Some(after) => {
            let running = program.go()?;
            if running.ended_within(milliseconds(after))? {
                output::note(format_args!("qfabric: the program ended within {after}, before it was reserved"));
                let code = running.reap()?;
                if let Some(path) = &args.report {
                    output::write_json(path, &[Row::of_unreserved(&request.contract)])?;
                }
                return Ok(code);
            }
            (running, admit()?)
        }
    };
    if let (Some(missing), false) = (admitted.memory.as_ref().and_then(|memory| memory.missing.as_ref()), args.quiet) {
        output::note(format_args!("qfabric: memory is promised and counted, but not protected: {missing}"));
    }
    let request = Request {
        client: &service.client,
        application: &request,
        joint: drawn.as_ref(),
        mechanism: args.mechanism,
        saves_energy: matches!(args.energy, Some(EnergyGoal::Save)),
        quiet: args.quiet,
    };
    request.ask_for_energy(admitted.id);
    let mut held = Held::new(request, admitted, daemon);
    let (code, left) = follow(running, &mut held)?;
    if let Some(policy) = left.filter(|_| args.after.is_none() && may_be_own_scheduling(code, &service.client)) {
        output::note(own_scheduling(&args.command, code, policy));
    }
    finish(&args, &held, &service.place())?;
    Ok(code)
}

/// Writes the report and prints the summaries.
fn finish(args: &Args, held: &Held<'_>, place: &str) -> Result<(), Failure> {
    if let Some(path) = &args.report {
        output::write_json(path, &held.all().map(Row::of).collect::<Vec<_>>())?;
    }
    if !args.quiet {
        held.all().for_each(|one| output::note(summary(one, place)));
    }
    Ok(())
}

/// A program without a lower clock runs on: it keeps its deadlines, and uses more energy.
fn save_energy(client: &Client, id: AppId, quiet: bool) {
    let news = match client.save_energy(id) {
        Ok(saving) if saving.missing.is_empty() => return,
        Ok(saving) => saving.missing.join("; "),
        Err(error) => error.to_string(),
    };
    if !quiet {
        output::note(format_args!("qfabric: energy: {news}"));
    }
}

/// The name of a program's file, without control characters, cut to the 64 characters of a contract's name.
pub(crate) fn name_of(command: &[OsString]) -> String {
    let path = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let name: String = path.to_string_lossy().chars().filter(|c| is_plain(*c)).take(64).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// The mechanism for an embedded daemon: `ext` if the contract needs it and the user requires no other.
pub(crate) fn mechanism(wanted: MechanismName, contract: &Contract) -> MechanismName {
    let needs_ext = contract.needs().or(contract.reclaiming.beyond_deadline()).is_some();
    if wanted == MechanismName::Auto && needs_ext { MechanismName::Ext } else { wanted }
}

pub(crate) fn check_mechanism(client: &Client, wanted: MechanismName) -> Result<(), Failure> {
    if wanted == MechanismName::Auto {
        return Ok(());
    }
    let status = client.status().map_err(connect::failure)?;
    if status.mechanism == wanted.name() {
        return Ok(());
    }
    let why = status.fallback.map(|why| format!(" ({why})")).unwrap_or_default();
    Err(Failure::unavailable(format!(
        "mechanism {wanted} is required, but the daemon uses {}{why}; set mechanism.name = \"{wanted}\" in its \
                 configuration (qfabric doctor shows the mechanisms that work here), or stop the daemon: run then does its work itself",
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

/// Waits for the end of the program. Returns its exit code, and the real-time policy that the program had set for itself
/// at its end.
fn follow(program: Running, held: &mut Held<'_>) -> Result<(Done, Option<Policy>), Failure> {
    for look in (0_u32..=FIRST_LOOKS).chain(std::iter::repeat(FIRST_LOOKS)) {
        let ended = program.ended_within(if look < FIRST_LOOKS { LOOK_MS.0 } else { LOOK_MS.1 })?;
        match held.look() {
            Ok(()) => {}
            // The daemon removes a program that has ended; it may notice the end before this process does.
            Err(_) if ended || program.ended_within(LOOK_MS.0)? => break,
            // The daemon may have ended or may be restarting. The program continues, so keep waiting for its end.
            Err(error) => held.lose(&error),
        }
        if ended {
            break;
        }
        held.ask_again();
    }
    held.release();
    // A program that has ended keeps its pid and its policy until it is reaped.
    let policy = SchedAttr::of(ThreadId(held.pid())).ok().map(|attr| attr.policy);
    let chosen = policy.filter(|policy| [Policy::FIFO, Policy::RR].contains(policy));
    Ok((program.reap()?, chosen))
}

/// True if a program with this exit code may have failed because of its reservation. A signal ended it, or it obeyed
/// one, if the code is above 128 (130: Ctrl-C). Only under SCHED_DEADLINE a thread cannot return to its former policy.
fn may_be_own_scheduling(code: Done, client: &Client) -> bool {
    failed_by_itself(code) && client.status().is_ok_and(|status| status.mechanism == MechanismName::Deadline.name())
}

fn failed_by_itself(code: Done) -> bool {
    (1..=128).contains(&code.0)
}

/// Explains why a program that sets its own scheduling may have failed. Programs that test whether they may use
/// real-time scheduling (rt-tests) switch to SCHED_FIFO and back to their former policy. The kernel accepts
/// SCHED_DEADLINE only from `sched_setattr`, so the way back fails under a reservation.
fn own_scheduling(command: &[OsString], code: Done, policy: Policy) -> String {
    let (name, code, policy) = (name_of(command), code.0, policy.name());
    format!(
        "qfabric: {name} failed (exit code {code}) after it had put itself under {policy}. A program under a reservation \
                 cannot return to its former policy by sched_setscheduler: the kernel answers EINVAL.\n\
                 try: qfabric run --after 500ms …, which reserves after the program has set itself up, or --mechanism ext (Linux 6.19)"
    )
}

/// A message if the period that the daemon finds has appeared, changed or vanished.
fn rhythm_news(before: &Application, now: &Application) -> Option<String> {
    match (before.rhythm, now.rhythm) {
        (before, Some(FoundRhythm { period, confidence, after })) if before.map(|b| b.period) != Some(period) => {
            let (seconds, percent) = (after.as_f64() / 1e9, 100.0 * confidence);
            Some(format!("auto: period {period} found after {seconds:.1} s (confidence {percent:.0} %)"))
        }
        (Some(lost), None) => {
            let period = lost.period;
            Some(format!(
                "auto: period {period} lost; the budget follows the consumption until a period is found again"
            ))
        }
        _ => None,
    }
}

/// The row, if it is the one of process `pid`. Numbers of applications begin at 1 again when a daemon restarts, so the
/// row may belong to a stranger: then the contract is gone.
pub(crate) fn of_same_process(row: Result<Application, ClientError>, pid: i32) -> Result<Application, ClientError> {
    match row {
        Ok(other) if other.pid != pid => {
            let why = format!("process {pid} has no contract: application {} is process {}", other.id, other.pid);
            Err(ClientError::Refused(Problem::new("not_found", why, "list the applications (GET /v1/applications)")))
        }
        row => row,
    }
}

/// Releases the application, unless its number now stands for another process. Errors are ignored: the daemon may
/// have released it already, or may have ended itself.
pub(crate) fn release(client: &Client, last: &Application) {
    if of_same_process(client.application(last.id), last.pid).is_ok() {
        let _ = client.release(last.id);
    }
}

#[derive(serde::Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    quality: Quality,
    /// Present only under a mechanism whose servers count their periods.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ServerCounts>,
}

impl Row {
    pub(crate) fn of(application: &Application) -> Row {
        let quality = Quality { policy: application.contract.name.clone(), ..application.quality.clone() };
        Row { quality, server: application.server }
    }

    /// The row of a program that ended before it was reserved: no jobs were counted.
    fn of_unreserved(contract: &Contract) -> Row {
        Row { quality: Quality { policy: contract.name.clone(), ..Quality::default() }, server: None }
    }
}

pub(crate) fn summary(application: &Application, place: &str) -> String {
    let Application { contract, quality, .. } = application;
    let bandwidth =
        format!("{} reserved on average, {} used", Share::from_f64(quality.mean_bandwidth), application.used);
    let did = match &application.server {
        Some(counts) => periods(contract, counts),
        None => jobs(contract, quality),
    };
    format!("qfabric: {}: {did}; {bandwidth}; by {place}", contract.name)
}

/// Summary of the jobs. A job that ended early is no failure: it had more CPU time than it needed.
fn jobs(contract: &Contract, quality: &Quality) -> String {
    let Quality { jobs, misses, in_target, .. } = quality;
    if contract.jobs == JobSource::Consumption {
        return "no period: no jobs to count (set one with --period or --fps)".to_owned();
    }
    if *jobs == 0 {
        return "the program ended before its first job".to_owned();
    }
    let late = format!("{misses} of {jobs} jobs late ({:.1} %)", 100.0 * *misses as f64 / *jobs as f64);
    let inside = (in_target * *jobs as f64).round() as u64;
    let early = jobs.saturating_sub(inside + misses);
    format!("{late}, {inside} in the target interval, {early} earlier than it; T {}", contract.period)
}

/// Summary of the server's periods.
fn periods(contract: &Contract, counts: &ServerCounts) -> String {
    let ServerCounts { served, missed, violations, boosts, .. } = counts;
    let window = contract.window.map(|window| format!(" of window {window}")).unwrap_or_default();
    let period = contract.server_period;
    let slots = match (counts.throttles, counts.underruns) {
        (_, 0) => String::new(),
        (overruns, underruns) => format!("; {overruns} overruns, {underruns} underruns"),
    };
    format!(
        "periods of {period}: {served} served, {missed} missed, {violations} violations{window}; {boosts} event boosts{slots}"
    )
}

#[cfg(test)]
mod tests {
    use qfabric_types::Nanos;

    use super::*;
    use crate::status::tests::application;

    #[test]
    fn a_program_is_named_after_its_file() {
        let name = |command: &str| name_of(&[OsString::from(command)]);
        assert_eq!(name("/usr/bin/mpv"), "mpv");
        assert_eq!(name("../a\nb"), "ab");
        assert_eq!(name(".."), "unnamed");
        assert_eq!(name(&"x".repeat(99)).len(), 64);
    }

    #[test]
    fn the_row_of_a_report_has_the_documented_keys() {
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
    fn a_program_that_a_signal_ended_did_not_fail_by_its_reservation() {
        assert_eq!([0, 1, 128, 130, 143].map(|code| failed_by_itself(Done(code))), [false, true, true, false, false]);
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
    fn a_contract_that_needs_ext_selects_ext_unless_another_mechanism_is_required() {
        let plain = Contract::default();
        let windowed = Contract { window: "1/5".parse().ok(), ..Contract::default() };
        assert_eq!(mechanism(MechanismName::Auto, &plain), MechanismName::Auto);
        assert_eq!(mechanism(MechanismName::Auto, &windowed), MechanismName::Ext);
        assert_eq!(mechanism(MechanismName::Deadline, &windowed), MechanismName::Deadline);
        assert_eq!(mechanism(MechanismName::Ext, &plain), MechanismName::Ext);
    }

    #[test]
    fn a_found_changed_or_lost_period_is_reported_once() {
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
    fn the_summary_makes_no_claim_about_unknown_jobs() {
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
