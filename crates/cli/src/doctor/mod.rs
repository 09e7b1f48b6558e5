//! `qfabric doctor`: what this host offers, why not, and what to do about it. Where a daemon answers, what it offers.

mod served;

use std::path::{Path, PathBuf};

use comfy_table::{ContentArrangement, Table, presets};
use qfabric_daemon::Config;
use qfabric_linux::doctor::{self, Finding, Report, State};
use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::journal::{self, Journal};

use self::served::Served;
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// How wide the table is where no terminal says so, in characters.
const WIDTH: u16 = 120;

/// What this host offers: mechanisms, admission room, timers, rights, each with its reason and its fix.
///
/// Where a daemon answers, what it does for you. Ends with 4 where no mechanism works here and no daemon gives one.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric doctor --fix")]
pub struct Args {
    /// Carry out what can be fixed here, noting what it was so that `qfabric restore` can put it back
    #[arg(long)]
    fix: bool,
    /// With --fix: also enforce budgets by a timer (HRTICK_DL), for hard reservations and server periods of a few ticks;
    /// players under GRUB miss more jobs with it
    #[arg(long, requires = "fix")]
    exact: bool,
    /// Also measure whether the kernel lends what is reserved to others that reclaim: takes a second or two and all free
    /// CPU time, while nothing is reserved; with --fix, correct its sums (a minute at most)
    #[arg(long)]
    reclaiming: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
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
        report.findings = report.findings.into_iter().map(|finding| served.seen(finding)).collect();
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

/// Repairs under a journal of its own: the daemon's puts back at the daemon's next start what it holds.
fn fix(exact: bool, reclaiming: bool) -> Result<Vec<Finding>, Failure> {
    let directory = directory()?;
    std::fs::create_dir_all(&directory)
        .map_err(|error| Failure::fault(format!("cannot make {}: {error}; run as root", directory.display())))?;
    // What an earlier fix changed is put back first, so that the journal says what was there before any.
    journal::restore(&directory).map_err(Failure::fault)?;
    let mut journal = Journal::open(&directory).map_err(Failure::fault)?;
    let debugfs = Path::new(DEBUGFS);
    let mut fixed = vec![doctor::fix_booked(debugfs)];
    fixed.extend(reclaiming.then(|| doctor::fix_reclaiming(debugfs)));
    fixed.extend(exact.then(|| doctor::fix(debugfs, &mut journal)));
    Ok(fixed)
}

/// Where `--fix` keeps its journal.
pub fn directory() -> Result<PathBuf, Failure> {
    Ok(Config::load(None).and_then(|config| config.directory()).map_err(Failure::usage)?.join("doctor"))
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
        let by_us = if finding.fixable { "qfabric doctor --fix: " } else { "" };
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
        (None, _) => "no mechanism works here; see what is missing above\n".to_owned(),
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
    fn every_finding_has_its_reason_and_its_fix() {
        let text = text(&report(), &[], None);
        for part in
            ["hrtick_dl", "could be better", "off", "qfabric doctor --fix: switch it on", "1.8 CPU now (probed)"]
        {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
    }

    #[test]
    fn what_a_machine_does_not_have_is_not_called_missing() {
        assert_eq!(word(State::Absent), "not on this machine");
    }

    #[test]
    fn a_host_without_a_mechanism_is_told_so() {
        let none = Report { facts: Facts::default(), ..report() };
        assert!(verdict(&none).contains("no mechanism"));
    }
}
