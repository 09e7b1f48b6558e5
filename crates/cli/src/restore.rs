//! `qfabric restore`: undoes the changes that a killed daemon, or a killed `qfabric run` without a daemon, left behind.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use qfabric_daemon::Config;
use qfabric_linux::books;
use qfabric_linux::journal::{self, JournalError, Restored, own, users};
use qfabric_linux::power;
use rustix::net::sockopt;

use crate::exit::{Advice, Done, Failure, Outcome};
use crate::{doctor, output};

/// Restores threads and host settings that a killed daemon left changed.
///
/// Also restores those of a killed `run` without a daemon. Prints the numbers of restored threads and settings for each
/// journal. Can be repeated. Ends with 1 if a thread or setting could not be restored, or if the daemon of --directory
/// still runs. A running daemon restores its own changes when it ends.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric restore")]
pub(crate) struct Args {
    /// Folder of a daemon, with its journal [default: the folders of the configured daemon, of doctor --fix and of
    /// killed runs]
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, serde::Serialize)]
struct Report {
    #[serde(flatten)]
    sum: Restored,
    journals: Vec<Journal>,
    /// Journals of daemons that still run; they restore their own changes.
    held: Vec<PathBuf>,
    /// The processes of these daemons, by journal; absent if a daemon does not answer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    daemons: BTreeMap<PathBuf, i32>,
}

#[derive(Debug, serde::Serialize)]
struct Journal {
    path: PathBuf,
    #[serde(flatten)]
    restored: Restored,
}

pub(crate) fn run(args: Args) -> Outcome {
    let mut report = Report::default();
    let asked_for = args.directory.is_some();
    let directories = directories(args.directory)?;
    directories.iter().for_each(|directory| report.restore(directory));
    if !asked_for && rustix::process::geteuid().is_root() {
        let found = users::restore_stale_of_users(Path::new(users::USERS));
        found.into_iter().for_each(|(path, restored)| report.add_of_user(path, restored));
    }
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
    let daemon = Config::load(None).and_then(|config| config.directory());
    let daemon = daemon.map_err(|error| Failure::usage(Advice(&error.problem())))?;
    let mut directories = vec![doctor::directory()?, daemon];
    // A user without a runtime folder has no journals of killed runs.
    directories.extend(Config::default().directory());
    directories.dedup();
    Ok(directories)
}

impl Report {
    /// Turns the journals of running daemons into failures if the user named a folder.
    fn refuse_held(&mut self, asked_for: bool) {
        if asked_for {
            let held = std::mem::take(&mut self.held).into_iter();
            let error = |path: PathBuf| match self.daemons.get(&path) {
                Some(pid) => format!("{} (process {pid})", JournalError::Held { path }),
                None => JournalError::Held { path }.to_string(),
            };
            self.sum.failed.extend(held.map(error));
        }
    }

    /// Restores from the journal of the folder, from its record of interfaces, and from the journals of killed runs
    /// below it. A running daemon keeps what it has changed, interfaces and groups too.
    fn restore(&mut self, directory: &Path) {
        let journal = directory.join(journal::FILE);
        let restored = journal::restore(directory);
        let is_held = matches!(restored, Err(JournalError::Held { .. }));
        if let Some(pid) = listener(directory).filter(|_| is_held) {
            self.daemons.insert(journal.clone(), pid);
        }
        self.add(journal, restored);
        if !is_held {
            self.restore_more(directory);
        }
        match own::restore_stale(directory) {
            Ok(found) => found.into_iter().for_each(|(path, restored)| self.add(path, restored)),
            Err(error) => self.sum.failed.push(error.to_string()),
        }
    }

    /// Restores interfaces, control groups and knobs of energy.
    fn restore_more(&mut self, directory: &Path) {
        self.add(directory.join(power::FOLDER).join(journal::FILE), power::restore(directory));
        self.sum.add_result(qfabric_linux::net::restore(directory));
        self.sum.add(qfabric_linux::memory_groups::restore(directory).into());
    }

    /// What a user's journal asks for and root refuses is printed, and does not change the exit code: any user could
    /// write such a journal.
    fn add_of_user(&mut self, path: PathBuf, restored: Result<Restored, JournalError>) {
        match restored {
            Ok(mut restored) => {
                for failure in std::mem::take(&mut restored.failed) {
                    output::note(format_args!("qfabric: {}: not restored: {failure}", path.display()));
                }
                self.add(path, Ok(restored));
            }
            Err(error) => output::note(format_args!("qfabric: {error}")),
        }
    }

    fn add(&mut self, path: PathBuf, restored: Result<Restored, JournalError>) {
        match restored {
            Ok(restored) if restored == Restored::default() => {}
            Ok(restored) => {
                self.sum.add(restored.clone());
                self.journals.push(Journal { path, restored });
            }
            Err(JournalError::Held { path }) => self.held.push(path),
            Err(error) => self.sum.failed.push(error.to_string()),
        }
    }
}

/// The process that listens at the socket of a folder.
fn listener(directory: &Path) -> Option<i32> {
    let socket = UnixStream::connect(directory.join("qfabric.sock")).ok()?;
    Some(sockopt::socket_peercred(&socket).ok()?.pid.as_raw_nonzero().get())
}

fn text(report: &Report) -> String {
    let Restored { threads, skipped, settings, failed } = &report.sum;
    let mut text = format!("{threads} threads and {settings} host settings restored, {skipped} threads had ended\n");
    for Journal { path, restored } in &report.journals {
        let Restored { threads, skipped, settings, .. } = restored;
        let path = path.display();
        text +=
            &format!("journal {path}: {threads} threads and {settings} host settings restored, {skipped} had ended\n");
    }
    for path in &report.held {
        let process = report.daemons.get(path).map(|pid| format!(" (process {pid})")).unwrap_or_default();
        text += &format!("journal {}: its daemon still runs{process} and restores its own changes\n", path.display());
    }
    for failure in failed {
        text += &format!("not restored: {failure}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_restore_is_reported_with_its_reason() {
        let mut report = Report::default();
        let restored = Restored { threads: 2, failed: vec!["thread 7: EPERM".into()], ..Restored::default() };
        report.add("/run/x/journal.jsonl".into(), Ok(restored));
        report.add("/run/y/journal.jsonl".into(), Ok(Restored { threads: 1, ..Restored::default() }));
        report.add("/run/z/journal.jsonl".into(), Err(JournalError::Held { path: "/run/z".into() }));
        let text = text(&report);
        for part in ["3 threads", "journal /run/x/journal.jsonl: 2 threads", "not restored: thread 7: EPERM", "/run/z"]
        {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        assert_eq!(serde_json::to_value(&report).unwrap()["journals"][1]["threads"], 1);
    }
}
