//! `qfabric doctor`: examines this host and prints the state of each finding, its reason and its fix. If a daemon
//! answers, prints also what the daemon does for its users.

mod served;

use std::path::{Path, PathBuf};

use comfy_table::{ContentArrangement, Table, presets};
use qfabric_daemon::Config;
use qfabric_linux::doctor::{self, Finding, Report, State};
use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::journal::Journal;

use self::served::Served;
use crate::exit::{Advice, Done, Failure, Outcome};
use crate::output;

/// The command that carries out the possible fixes.
const COMMAND: &str = "qfabric doctor --fix";
/// Width of the table in characters if the output is no terminal.
const WIDTH: u16 = 120;

/// Examines what this host needs for reservations, and prints the reason and the fix of each finding.
///
/// Examines the scheduling mechanisms, the CPU time that can still be reserved, timers, rights, and the methods to
/// observe programs and to run handlers. If a daemon answers, a right that the daemon uses for you counts as present.
/// Ends with 4 if no mechanism works here and no daemon offers one. `sudo qfabric doctor --fix` carries out the fixes.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric doctor --fix")]
pub(crate) struct Args {
    /// Carry out the possible fixes; needs root. `qfabric restore` restores the previous values
    #[arg(long)]
    fix: bool,
    /// With --fix: also enforce budgets by a timer (HRTICK_DL) instead of the scheduler's tick
    ///
    /// Use it for hard reservations and for server periods of a few ticks. Players under GRUB miss more jobs with it.
    #[arg(long, requires = "fix")]
    exact: bool,
    /// Also measure whether GRUB lends CPU time that is reserved; with --fix, correct the kernel's sums
    ///
    /// The measurement takes one or two seconds and all free CPU time, and needs a host without reservations. The
    /// correction takes at most a minute.
    #[arg(long)]
    reclaiming: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let mut fixed = Vec::new();
    if args.fix {
        fixed = fix(args.exact, args.reclaiming)?;
    }
    let mut report = doctor::examine();
    if args.reclaiming {
        report.findings.push(doctor::reclaiming(Path::new(DEBUGFS)));
    }
    let served = Served::ask();
    if let Some(served) = &served {
        report.findings = report.findings.into_iter().map(|finding| served.for_user(finding)).collect();
    }
    if args.json {
        output::print_json(&serde_json::json!({
            "findings": report.findings, "facts": report.facts, "fixed": fixed,
            "booked_for_nobody": report.facts.booked_for_nobody,
            "daemon": served.as_ref().map(Served::json),
        }))?;
    } else {
        output::print(&text(&report, &fixed, served.as_ref()))?;
    }
    let works = report.facts.mechanism.is_some() || served.is_some_and(|served| served.mechanism().is_some());
    Ok(Done(if works { 0 } else { 4 }))
}

/// Carries out the fixes and records them in a separate journal: the daemon would undo the entries of its own journal
/// at its next start.
fn fix(exact: bool, reclaiming: bool) -> Result<Vec<Finding>, Failure> {
    let directory = directory()?;
    std::fs::create_dir_all(&directory).map_err(|error| {
        Failure::fault(format!("cannot create the folder {}: {error}; run as root", directory.display()))
    })?;
    // The fixes of an earlier call stay in force. The journal keeps the values before any fix.
    let mut journal = Journal::open(&directory).map_err(|error| Failure::fault(Advice(&error.problem())))?;
    let debugfs = Path::new(DEBUGFS);
    let mut fixed = vec![doctor::fix_booked(debugfs)];
    fixed.extend(reclaiming.then(|| doctor::fix_reclaiming(debugfs)));
    fixed.extend(exact.then(|| doctor::fix(debugfs, &mut journal)));
    Ok(fixed)
}

/// Folder of the journal of `--fix`.
pub(crate) fn directory() -> Result<PathBuf, Failure> {
    let daemon = Config::load(None).and_then(|config| config.directory());
    Ok(daemon.map_err(|error| Failure::usage(Advice(&error.problem())))?.join("doctor"))
}

fn text(report: &Report, fixed: &[Finding], served: Option<&Served>) -> String {
    let mut text = String::new();
    for finding in fixed {
        text += &format!("fix {}: {}\n", finding.name, finding.reason);
    }
    text += &table(&report.findings);
    text + &served.map_or_else(|| verdict(report), Served::verdict)
}

fn table(findings: &[Finding]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(WIDTH);
    }
    table.set_header(["what", "state", "found", "to do"]);
    for finding in findings {
        let fix = finding.fix.as_deref().unwrap_or("");
        let by_us = if finding.fixable && !fix.contains(COMMAND) { format!("{COMMAND}: ") } else { String::new() };
        table.add_row([finding.name, word(finding.state), &finding.reason, &format!("{by_us}{fix}")]);
    }
    format!("{table}\n")
}

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Warn => "could be better",
        State::Missing => "missing",
        State::Unknown => "unknown",
        State::Absent => "not on this machine",
    }
}

fn verdict(report: &Report) -> String {
    match (report.facts.mechanism, report.facts.capacity) {
        (Some(mechanism), Some(capacity)) => {
            format!("mechanism {mechanism}; the kernel would admit {capacity} now (probed)\n")
        }
        (Some(mechanism), None) => format!("mechanism {mechanism}\n"),
        (None, _) => "no mechanism works here; the findings above say what is missing\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use qfabric_linux::doctor::Facts;
    use qfabric_types::Share;

    use qfabric_types::MechanismName;

    use super::*;

    fn report() -> Report {
        let finding = Finding {
            name: "hrtick_dl",
            state: State::Warn,
            reason: "off".into(),
            fix: Some("switch it on".into()),
            fixable: true,
        };
        let facts = Facts {
            mechanism: Some(MechanismName::Deadline),
            capacity: Some(Share::from_f64(1.8)),
            ..Facts::default()
        };
        Report { findings: vec![finding], facts }
    }

    #[test]
    fn every_finding_is_shown_with_its_reason_and_its_fix() {
        let text = text(&report(), &[], None);
        for part in
            ["hrtick_dl", "could be better", "off", "qfabric doctor --fix: switch it on", "1.8 CPU now (probed)"]
        {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
    }

    #[test]
    fn a_fix_that_names_the_command_names_it_once() {
        let mut report = report();
        report.findings[0].fix = Some("run qfabric doctor --fix, or restart the host".to_owned());
        let text = text(&report, &[], None);
        assert_eq!(text.matches("--fix").count(), 1, "{text}");
    }

    #[test]
    fn absent_hardware_is_not_called_missing() {
        assert_eq!(word(State::Absent), "not on this machine");
    }

    #[test]
    fn the_verdict_for_a_host_without_a_mechanism_says_so() {
        let none = Report { facts: Facts::default(), ..report() };
        assert!(verdict(&none).contains("no mechanism"));
    }
}
