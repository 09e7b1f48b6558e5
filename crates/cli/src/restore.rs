//! `qfabric restore`: puts back what a killed daemon, or a killed `qfabric run` without one, left.

use std::path::{Path, PathBuf};

use qfabric_daemon::Config;
use qfabric_linux::books;
use qfabric_linux::journal::{self, JournalError, Restored, own};

use crate::exit::{Done, Failure, Outcome};
use crate::{doctor, output};

/// Puts threads and host settings back that a killed daemon, or a killed `run` without one, left changed.
///
/// Says how many, and from which journals. Safe to repeat.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric restore")]
pub struct Args {
    /// The daemon's folder, with its journal [default: that of the daemon's configuration, that of
    /// doctor --fix, and those of killed runs]
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// What was put back, journal by journal.
#[derive(Debug, Default, serde::Serialize)]
struct Report {
    #[serde(flatten)]
    sum: Restored,
    journals: Vec<Journal>,
    /// Journals of running services: there is nothing to put back.
    held: Vec<PathBuf>,
}

/// What one journal said, and what came of it.
#[derive(Debug, serde::Serialize)]
struct Journal {
    path: PathBuf,
    #[serde(flatten)]
    restored: Restored,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let mut report = Report::default();
    let asked_for = args.directory.is_some();
    let directories = directories(args.directory)?;
    directories.iter().for_each(|directory| report.restore(directory));
    report.sum.settings += books::repair_after_crash();
    report.refuse_held(asked_for);
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(Done(if report.sum.failed.is_empty() { 0 } else { 1 }))
}

fn directories(given: Option<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    if let Some(directory) = given {
        return Ok(vec![directory]);
    }
    let daemon = Config::load(None).and_then(|config| config.directory()).map_err(Failure::usage)?;
    let mut directories = vec![doctor::directory()?, daemon];
    // Without a run folder of its own this user has no killed runs either.
    directories.extend(Config::default().directory());
    directories.dedup();
    Ok(directories)
}

impl Report {
    /// A running service looks after its threads. Only where its folder was asked for is that a failure.
    fn refuse_held(&mut self, asked_for: bool) {
        if asked_for {
            let error = |path: PathBuf| JournalError::Held { path }.to_string();
            self.sum.failed.extend(std::mem::take(&mut self.held).into_iter().map(error));
        }
    }

    /// Of the folder's own journal, of its interfaces, and of those of killed services below it.
    fn restore(&mut self, directory: &Path) {
        self.add(directory.join(journal::FILE), journal::restore(directory));
        match qfabric_linux::net::restore(directory) {
            Ok(networks) => {
                self.sum.settings += networks.interfaces;
                self.sum.failed.extend(networks.failed);
            }
            Err(error) => self.sum.failed.push(error.to_string()),
        }
        match own::restore_stale(directory) {
            Ok(found) => found.into_iter().for_each(|(path, restored)| self.add(path, restored)),
            Err(error) => self.sum.failed.push(error.to_string()),
        }
    }

    fn add(&mut self, path: PathBuf, restored: Result<Restored, JournalError>) {
        match restored {
            Ok(restored) if restored == Restored::default() => {}
            Ok(restored) => {
                let sum = &mut self.sum;
                sum.threads += restored.threads;
                sum.skipped += restored.skipped;
                sum.settings += restored.settings;
                sum.failed.extend(restored.failed.iter().cloned());
                self.journals.push(Journal { path, restored });
            }
            Err(JournalError::Held { path }) => self.held.push(path),
            Err(error) => self.sum.failed.push(error.to_string()),
        }
    }
}

fn text(report: &Report) -> String {
    let Restored { threads, skipped, settings, failed } = &report.sum;
    let mut text = format!("{threads} threads and {settings} host settings put back, {skipped} threads had ended\n");
    for Journal { path, restored } in &report.journals {
        let Restored { threads, skipped, settings, .. } = restored;
        let path = path.display();
        text +=
            &format!("journal {path}: {threads} threads and {settings} host settings put back, {skipped} had ended\n");
    }
    for path in &report.held {
        text += &format!("journal {}: a running service looks after its threads\n", path.display());
    }
    for failure in failed {
        text += &format!("not put back: {failure}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_put_back_is_named() {
        let mut report = Report::default();
        let restored = Restored { threads: 2, failed: vec!["thread 7: EPERM".into()], ..Restored::default() };
        report.add("/run/x/journal.jsonl".into(), Ok(restored));
        report.add("/run/y/journal.jsonl".into(), Ok(Restored { threads: 1, ..Restored::default() }));
        report.add("/run/z/journal.jsonl".into(), Err(JournalError::Held { path: "/run/z".into() }));
        let text = text(&report);
        for part in ["3 threads", "journal /run/x/journal.jsonl: 2 threads", "not put back: thread 7: EPERM", "/run/z"]
        {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        assert_eq!(serde_json::to_value(&report).unwrap()["journals"][1]["threads"], 1);
    }
}
