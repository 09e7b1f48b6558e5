//! What was changed on this host, so that the next start, or `qfabric restore`, can put it back after a crash.
//!
//! One JSON record a line in `journal.jsonl` of the run folder, written with one `write(2)` before the change
//! it describes, so that every change is in it; a killed service leaves the file as it is. It is not synced to
//! disk: a machine that lost power has lost the changes too. Threads are named by number *and* start time, the
//! file by boot, so nothing is ever put back onto a stranger. The running service holds a lock on the file;
//! the lock goes with the process, however it ends.
//!
//! The file decides what a privileged process writes to the scheduler: it must be a plain file of one's own
//! that nobody else can write, every line must be believable, else all of it is refused. Only a torn last line
//! (no newline: the service died in the write) is passed over; its change was never made.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use qfabric_sync::assert_may_block;
use qfabric_types::{Nanos, ThreadId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::hrtick::{self, Feature};
use crate::leaving::{Departure, Step};
use crate::release;
use crate::sched_attr::{Policy, SchedAttr};
use crate::threads;

pub mod own;

/// The file's name in the run folder.
pub const FILE: &str = "journal.jsonl";
/// A longer journal is not this program's: it is rewritten long before.
const MAX_BYTES: u64 = 16 << 20;
/// Rewritten without what is settled when this many lines have been added since the last time.
const LINES_BEFORE_REWRITE: usize = 8_192;
/// Putting back does not wait longer than this for threads that rest; who reserves them too early is refused.
const LONGEST_END: Nanos = Nanos::from_millis(1_000);

/// The open journal of a running service.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    line: Vec<u8>,
    threads: BTreeMap<i32, Touched>,
    features: Vec<Switched>,
    lines_added: usize,
}

/// Why a journal could not be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file or its folder.
    #[error("journal {path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A running service holds it.
    #[error("journal {path} belongs to a running service; stop that first")]
    Held {
        /// Which.
        path: PathBuf,
    },
    /// There is something in it to put back first.
    #[error("journal {path} says that a former service left changes; run `qfabric restore` first")]
    Unsettled {
        /// Which.
        path: PathBuf,
    },
    /// Its content is not this program's.
    #[error("journal {path}, line {line}: {why}; nothing was changed, look at it and remove it")]
    Hostile {
        /// Which.
        path: PathBuf,
        /// Where; 0 for the file itself.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// What putting back came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Threads put back under their former scheduler.
    pub threads: usize,
    /// Threads that were over, or back already.
    pub skipped: usize,
    /// Host settings put back.
    pub settings: usize,
    /// What could not be put back, and why.
    pub failed: Vec<String>,
}

/// A thread as it was before it was first touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Touched {
    /// Its number.
    pub tid: ThreadId,
    /// Its start time; with the number, its identity.
    pub start: u64,
    /// What it had.
    pub was: SchedAttr,
    /// Its timer slack in nanoseconds: the kernel sets that to 0 for real-time threads and to the default,
    /// not to what it was, afterwards. `None`: not readable.
    pub slack_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switched {
    root: PathBuf,
    feature: Feature,
    was_on: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Boot(String),
    Thread(Touched),
    Released(ThreadId),
    Feature(Switched),
    FeatureBack(Feature),
}

impl Journal {
    /// Opens, or makes, the journal of a run folder, and holds it until dropped. What an earlier service left
    /// must have been put back with [`restore`] before.
    pub fn open(dir: &Path) -> Result<Journal, JournalError> {
        let path = dir.join(FILE);
        let file = open_held(&path, true)?.ok_or_else(|| io_error(&path, io::ErrorKind::NotFound.into()))?;
        if let Some(left) = read(&path, &file)?
            && left.anything()
        {
            return Err(JournalError::Unsettled { path });
        }
        file.set_len(0).map_err(|e| io_error(&path, e))?;
        let line = Vec::with_capacity(1_024);
        let (threads, features) = (BTreeMap::new(), Vec::new());
        let mut journal = Journal { path, file, line, threads, features, lines_added: 0 };
        journal.append(&Record::Boot(release::boot_id()))?;
        Ok(journal)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records a thread that is about to be touched.
    pub fn touching(&mut self, thread: Touched) -> Result<(), JournalError> {
        self.append(&Record::Thread(thread))?;
        self.threads.insert(thread.tid.0, thread);
        Ok(())
    }

    /// Records that a thread has been put back, or is over.
    pub fn released(&mut self, thread: ThreadId) -> Result<(), JournalError> {
        match self.threads.remove(&thread.0) {
            Some(_) => self.append(&Record::Released(thread)),
            None => Ok(()),
        }
    }

    /// Switches a scheduler feature after recording what it was. Answers `false` where it was so already.
    pub fn switch(&mut self, root: &Path, feature: Feature, on: bool) -> Result<bool, SwitchError> {
        let was_on = match hrtick::state(root, feature) {
            hrtick::State::On => true,
            hrtick::State::Off => false,
            other => return Err(SwitchError::Refused(other)),
        };
        if was_on == on {
            return Ok(false);
        }
        let switched = Switched { root: root.to_owned(), feature, was_on };
        self.append(&Record::Feature(switched.clone()))?;
        self.features.push(switched);
        hrtick::set(root, feature, on).map_err(SwitchError::Refused)?;
        Ok(true)
    }

    /// Puts back the features switched through this journal; answers what could not be.
    pub fn switch_back(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        for switched in std::mem::take(&mut self.features) {
            let back = switched
                .put_back()
                .and_then(|()| self.append(&Record::FeatureBack(switched.feature)).map_err(|e| e.to_string()));
            failed.extend(back.err());
        }
        failed
    }

    fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        if self.lines_added >= LINES_BEFORE_REWRITE {
            self.rewrite().map_err(|e| io_error(&self.path, e))?;
        }
        self.lines_added += 1;
        write_line(&mut self.file, &mut self.line, record).map_err(|e| io_error(&self.path, e))
    }

    /// Replaces the file by one with only what is still to be put back: complete or not at all.
    fn rewrite(&mut self) -> io::Result<()> {
        let aside = self.path.with_extension("new");
        let _ = fs::remove_file(&aside);
        let mut file = options().create_new(true).open(&aside)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let threads = self.threads.values().map(|t| Record::Thread(*t));
        let features = self.features.iter().map(|f| Record::Feature(f.clone()));
        for record in std::iter::once(Record::Boot(release::boot_id())).chain(threads).chain(features) {
            write_line(&mut file, &mut self.line, &record)?;
        }
        fs::rename(&aside, &self.path)?;
        (self.file, self.lines_added) = (file, 0);
        Ok(())
    }
}

/// Why a feature was not switched.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// It could not be recorded, so it was not touched.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel has no such switch or refuses it.
    #[error("the scheduler feature cannot be switched: {0:?}")]
    Refused(hrtick::State),
}

/// Puts back what the journal in `dir` says was changed and still is; safe to repeat. No journal: nothing to
/// do. Changes nothing where the content is not believable. Returns when the threads may be reserved again, at
/// most a second later.
pub fn restore(dir: &Path) -> Result<Restored, JournalError> {
    let path = dir.join(FILE);
    let Some(file) = open_held(&path, false)? else { return Ok(Restored::default()) };
    let Some(left) = read(&path, &file)? else { return Ok(Restored::default()) };
    let (done, rest) = left.put_back();
    // Whoever called this may reserve for the same threads next.
    std::thread::sleep(Duration::from_nanos(rest.min(LONGEST_END).get()));
    if done.failed.is_empty() {
        file.set_len(0).map_err(|e| io_error(&path, e))?;
    }
    Ok(done)
}

/// As [`restore`], for the service itself, where the thread that holds the journal hangs: the lock on the file is this
/// process's already. Returns when the threads are back; some of them may not be reserved again yet.
pub fn restore_own(dir: &Path) -> Result<Restored, JournalError> {
    let path = dir.join(FILE);
    let file = options().open(&path).map_err(|e| io_error(&path, e))?;
    let left = read(&path, &file)?.unwrap_or_default();
    Ok(left.put_back().0)
}

/// Puts back all that are still those threads and still reserved. They leave side by side: the last is out after
/// about 2 s, or two of its periods. Answers for how long some of them must not be reserved again.
fn put_back_all(threads: impl Iterator<Item = Touched>, done: &mut Restored) -> Nanos {
    let (mut leaving, mut longest) = (Vec::new(), Nanos::ZERO);
    for thread in threads {
        match departure(&thread) {
            Ok(Some(departure)) => leaving.push((thread, departure)),
            Ok(None) => done.skipped += 1,
            Err(error) => done.failed.push(format!("thread {}: {error}", thread.tid)),
        }
    }
    while !leaving.is_empty() {
        let mut wait = LONGEST_END;
        leaving.retain_mut(|(thread, departure)| match departure.step() {
            Ok(Step::Wait(time)) => {
                wait = wait.min(time);
                true
            }
            Ok(Step::Left { rest }) => {
                put_slack_back(thread);
                (done.threads, longest) = (done.threads + 1, longest.max(rest));
                false
            }
            Err(error) if is_gone(&error) => {
                done.skipped += 1;
                false
            }
            Err(error) => {
                done.failed.push(format!("thread {}: {error}", thread.tid));
                false
            }
        });
        if !leaving.is_empty() {
            std::thread::sleep(Duration::from_nanos(wait.get()));
        }
    }
    longest
}

/// `None`: it is another thread, or back already.
fn departure(thread: &Touched) -> io::Result<Option<Departure>> {
    if threads::start_time(thread.tid) != Some(thread.start) {
        return Ok(None);
    }
    match SchedAttr::of(thread.tid) {
        Ok(now) if now.policy == Policy::DEADLINE && now != thread.was => {
            Ok(Some(Departure::begin(thread.tid, now, thread.was, None)))
        }
        Err(error) if !is_gone(&error) => Err(error),
        _ => Ok(None),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Timer slack as it was; best effort, since the kernel's default (50 µs) is what nearly every thread has.
pub(crate) fn put_slack_back(thread: &Touched) {
    if let Some(ns) = thread.slack_ns
        && timer_slack(thread.tid) != Some(ns)
    {
        let _ = files::write(format!("/proc/{}/timerslack_ns", thread.tid), ns.to_string());
    }
}

pub(crate) fn timer_slack(tid: ThreadId) -> Option<u64> {
    files::number(format!("/proc/{tid}/timerslack_ns"))
}

impl Switched {
    fn put_back(&self) -> Result<(), String> {
        hrtick::set(&self.root, self.feature, self.was_on).map_err(|s| format!("{}: {s:?}", self.feature.word()))
    }
}

#[derive(Debug, Default)]
struct Left {
    threads: BTreeMap<i32, Touched>,
    features: Vec<Switched>,
}

impl Left {
    fn anything(&self) -> bool {
        let still = |t: &&Touched| threads::start_time(t.tid) == Some(t.start);
        self.threads.values().any(|t| still(&t)) || !self.features.is_empty()
    }

    /// What was done, and for how long some of the threads must not be reserved again.
    fn put_back(self) -> (Restored, Nanos) {
        let mut done = Restored::default();
        let rest = put_back_all(self.threads.into_values(), &mut done);
        for switched in self.features.iter().rev() {
            match switched.put_back() {
                Ok(()) => done.settings += 1,
                Err(e) => done.failed.push(e),
            }
        }
        (done, rest)
    }

    fn take(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Boot(_) => return Err("a second boot record".into()),
            Record::Thread(t) if !t.was.is_believable() => return Err(format!("no kernel hands out {:?}", t.was)),
            Record::Thread(t) if t.tid.0 <= 1 => return Err(format!("thread {} is never touched", t.tid)),
            Record::Thread(t) => drop(self.threads.insert(t.tid.0, t)),
            Record::Released(tid) => drop(self.threads.remove(&tid.0)),
            Record::Feature(f) if !f.is_believable() => return Err(format!("{} is no debugfs", f.root.display())),
            Record::Feature(f) => self.features.push(f),
            Record::FeatureBack(name) => self.features.retain(|f| f.feature != name),
        }
        Ok(())
    }
}

impl Switched {
    fn is_believable(&self) -> bool {
        self.root.is_absolute() && !self.root.components().any(|c| c == std::path::Component::ParentDir)
    }
}

/// What the file says is to be put back; `None` where it is empty or of an earlier boot.
fn read(path: &Path, file: &File) -> Result<Option<Left>, JournalError> {
    let hostile = |line, why| JournalError::Hostile { path: path.to_owned(), line, why };
    check_file(file).map_err(|why| hostile(0, why))?;
    let text = files::bytes(path).map_err(|e| io_error(path, e))?;
    let whole = &text[..text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1)];
    let mut lines = whole.split_inclusive(|&b| b == b'\n').zip(1..);
    let Some((first, _)) = lines.next() else { return Ok(None) };
    match serde_json::from_slice(first) {
        Ok(Record::Boot(boot)) if boot == release::boot_id() => {}
        Ok(Record::Boot(_)) => return Ok(None),
        _ => return Err(hostile(1, "it does not begin with a boot record".into())),
    }
    let mut left = Left::default();
    for (line, number) in lines {
        let record = serde_json::from_slice(line).map_err(|e| hostile(number, e.to_string()))?;
        left.take(record).map_err(|why| hostile(number, why))?;
    }
    Ok(Some(left))
}

fn check_file(file: &File) -> Result<(), String> {
    let meta = file.metadata().map_err(|e| e.to_string())?;
    let me = rustix::process::geteuid().as_raw();
    match () {
        () if !meta.is_file() => Err("it is no plain file".into()),
        () if meta.uid() != me => Err(format!("it belongs to user {}, not to user {me}", meta.uid())),
        () if meta.mode() & 0o022 != 0 => Err(format!("others may write it (mode {:o})", meta.mode() & 0o777)),
        () if meta.nlink() != 1 => Err(format!("it has {} names", meta.nlink())),
        () if meta.len() > MAX_BYTES => Err(format!("it has {} bytes, at most {MAX_BYTES} are believed", meta.len())),
        () => Ok(()),
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// Opens and locks the file; `None` where it is missing and shall not be made.
fn open_held(path: &Path, make: bool) -> Result<Option<File>, JournalError> {
    let file = match options().create(make).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !make => return Ok(None),
        other => other.map_err(|e| io_error(path, e))?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(JournalError::Held { path: path.to_owned() }),
        Err(e) => Err(io_error(path, e.into())),
    }
}

/// Whether a journal that nobody holds says of nothing that it is to be put back.
fn holds_nothing(path: &Path) -> bool {
    let left = open_held(path, false).and_then(|file| file.map_or(Ok(None), |file| read(path, &file)));
    left.is_ok_and(|left| left.is_none_or(|left| !left.anything()))
}

fn write_line(file: &mut File, line: &mut Vec<u8>, record: &Record) -> io::Result<()> {
    assert_may_block("writing the journal");
    line.clear();
    serde_json::to_writer(&mut *line, record)?;
    line.push(b'\n');
    file.write_all(line)
}

fn io_error(path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
