//! Records the changes to this host, so that the next start or `qfabric restore` can undo them after a crash.
//!
//! The file `journal.jsonl` in the run folder has one JSON record per line. Each record is written with one `write(2)`
//! before the change that it describes, so the file contains every change. A killed service leaves the file as it is.
//! The file is not synced to disk: if the machine loses power, it loses the changes, too. The file names threads by id
//! *and* start time, and names the boot, so the attributes of one thread are never given to another. The running
//! service holds a lock on the file. The kernel releases the lock when the process ends, for whatever reason.
//!
//! The file decides what a privileged process writes to the scheduler. It must therefore be a regular file that belongs
//! to this user and that no other user can write, and every line must be valid; otherwise the whole file is refused.
//! Only an incomplete last line (no newline: the service died during the write) is ignored, because its change was
//! never made.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use qfabric_types::ThreadId;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::cpus::CpuList;
use crate::hrtick::{self, Feature};
use crate::power::{Knob, Radio};
use crate::release;
use crate::sched_attr::SchedAttr;

mod clamps;
mod error;
mod file;
pub mod own;
mod undo;
pub mod users;

use clamps::Clamped;
pub use error::{JournalError, SwitchError, TurnError};
pub(crate) use file::check_file;
use file::{open_held, options, write_line};
use undo::{Unrestored, of_radio, read};
pub(crate) use undo::{put_slack_back, timer_slack};
pub use undo::{restore, restore_own};

/// Name of the file in the run folder.
pub const FILE: &str = "journal.jsonl";
/// Largest file that is read. This program rewrites its journal long before that size.
const MAX_BYTES: u64 = 16 << 20;
/// After this many new lines the file is rewritten without the changes that are undone.
const LINES_BEFORE_REWRITE: usize = 8_192;

/// Time after which a knob that still shows its former value does not obey. The kernel applies a limit of the clocks in a
/// work queue, after the call that writes it.
const SETTLES: Duration = Duration::from_millis(200);

/// The open journal of a running service.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    line: Vec<u8>,
    threads: BTreeMap<i32, Touched>,
    dispatched: BTreeMap<i32, Dispatched>,
    features: Vec<Switched>,
    knobs: BTreeMap<Knob, String>,
    radios: BTreeMap<Radio, bool>,
    clamped: BTreeMap<i32, Clamped>,
    /// Clamps that this journal has set.
    set_clamps: BTreeSet<u32>,
    /// Threads of a former service that are not put back yet. They stay listed until a `restore` puts them back.
    inherited: Inherited,
    lines_added: usize,
    /// Length of the file in bytes, without a record that was written only in part.
    length: u64,
}

#[derive(Debug, Default)]
struct Inherited {
    threads: BTreeMap<i32, Touched>,
    dispatched: BTreeMap<i32, Dispatched>,
}

/// The result of putting changes back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub threads: usize,
    /// Threads that have ended or were already put back.
    pub skipped: usize,
    pub settings: usize,
    /// One message for each change that could not be undone.
    pub failed: Vec<String>,
}

impl Restored {
    /// Adds the results of another journal.
    pub fn add(&mut self, other: Restored) {
        self.threads += other.threads;
        self.skipped += other.skipped;
        self.settings += other.settings;
        self.failed.extend(other.failed);
    }

    /// Adds the result of putting other changes back; an error becomes a failure.
    pub fn add_result<R: Into<Restored>, E: fmt::Display>(&mut self, other: Result<R, E>) {
        match other {
            Ok(other) => self.add(other.into()),
            Err(error) => self.failed.push(error.to_string()),
        }
    }
}

/// The attributes of a thread before the first change to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Touched {
    pub tid: ThreadId,
    /// Start time in clock ticks since boot; together with the id it identifies the thread.
    pub start: u64,
    pub was: SchedAttr,
    /// Timer slack in nanoseconds. The kernel sets it to 0 for real-time threads, and afterwards to the default instead
    /// of the former value. `None`: it could not be read.
    pub slack_ns: Option<u64>,
}

/// A thread that the mechanism `dispatcher` moves between policies, bound to one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatched {
    pub thread: Touched,
    /// CPUs on which the thread might run before.
    pub cpus: CpuList,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switched {
    root: PathBuf,
    feature: Feature,
    was_on: bool,
}

/// A knob before its first turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turned {
    knob: Knob,
    was: String,
}

/// A wireless interface before its power save was first switched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PowerSave {
    radio: Radio,
    was_on: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Knob(Turned),
    KnobBack(Knob),
    PowerSave(PowerSave),
    PowerSaveBack(Radio),
    Clamped(Clamped),
    ClampBack(ThreadId),
    Boot(String),
    Thread(Touched),
    Dispatched(Dispatched),
    Released(ThreadId),
    Feature(Switched),
    FeatureBack(Feature),
}

impl Journal {
    /// Opens or creates the journal of a run folder and locks it until it is dropped. Changes of an earlier service
    /// that [`restore`] could not undo stay listed: this service keeps their former values, and a later `restore` tries
    /// again.
    pub fn open(dir: &Path) -> Result<Journal, JournalError> {
        let path = dir.join(FILE);
        let file = open_held(&path, true)?.ok_or_else(|| io_error(&path, io::ErrorKind::NotFound.into()))?;
        let mut left = read(&path, &file)?.unwrap_or_default();
        left.drop_undone();
        let Unrestored { threads, dispatched, features, knobs, radios, clamped } = left;
        let mut journal = Journal {
            path,
            file,
            line: Vec::with_capacity(1_024),
            threads: BTreeMap::new(),
            dispatched: BTreeMap::new(),
            features,
            knobs,
            radios,
            clamped,
            set_clamps: BTreeSet::new(),
            inherited: Inherited { threads, dispatched },
            lines_added: 0,
            length: 0,
        };
        journal.rewrite().map_err(|e| io_error(&journal.path, e))?;
        Ok(journal)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records a thread before the first change to it.
    pub fn touching(&mut self, thread: Touched) -> Result<(), JournalError> {
        match self.inherited.threads.get(&thread.tid.0) {
            Some(first) if first.start == thread.start => {} // its record has the attributes before all changes
            _ => {
                self.inherited.threads.remove(&thread.tid.0);
                self.append(&Record::Thread(thread))?;
            }
        }
        self.threads.insert(thread.tid.0, thread);
        Ok(())
    }

    /// Records a thread before the mechanism `dispatcher` changes it.
    pub fn dispatching(&mut self, thread: Dispatched) -> Result<(), JournalError> {
        let tid = thread.thread.tid.0;
        match self.inherited.dispatched.get(&tid) {
            Some(first) if first.thread.start == thread.thread.start => {}
            _ => {
                self.inherited.dispatched.remove(&tid);
                self.append(&Record::Dispatched(thread.clone()))?;
            }
        }
        self.dispatched.insert(tid, thread);
        Ok(())
    }

    /// Records that a thread was put back or has ended.
    pub fn released(&mut self, thread: ThreadId) -> Result<(), JournalError> {
        let (reserved, dispatched) = (self.threads.remove(&thread.0), self.dispatched.remove(&thread.0));
        if reserved.is_none() && dispatched.is_none() {
            return Ok(());
        }
        self.append(&Record::Released(thread))?;
        // The record above also ends the records of a former service, whose changes are still to be undone.
        if let Some(first) = self.inherited.threads.get(&thread.0).copied() {
            self.append(&Record::Thread(first))?;
        }
        match self.inherited.dispatched.get(&thread.0).cloned() {
            Some(first) => self.append(&Record::Dispatched(first)),
            None => Ok(()),
        }
    }

    /// Records the state of a scheduler feature, then switches it. Returns `false` if it already had the wanted state.
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

    /// Puts back all features that were switched through this journal. Returns an error message for each failure. A
    /// feature that could not be put back stays listed.
    pub fn switch_back(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        let (mut back, mut kept) = (Vec::new(), Vec::new());
        for switched in std::mem::take(&mut self.features).into_iter().rev() {
            match switched.put_back() {
                Ok(()) => back.push(switched.feature),
                Err(error) => {
                    failed.push(error);
                    kept.push(switched);
                }
            }
        }
        self.features.extend(kept.into_iter().rev());
        back.retain(|feature| self.features.iter().all(|kept| kept.feature != *feature));
        for feature in back {
            failed.extend(self.append(&Record::FeatureBack(feature)).err().map(|e| e.to_string()));
        }
        failed
    }

    /// Records the value of a knob at its first turn, then turns it. Returns false if it has the value already.
    ///
    /// # Errors
    /// The change could not be recorded, and was not made; or the kernel refused the value; or it accepted the value and
    /// did not take it. In the last case the knob has its former value again.
    pub fn turn(&mut self, knob: &Knob, value: &str) -> Result<bool, TurnError> {
        self.turn_by(knob, value, Knob::write)
    }

    fn turn_by(
        &mut self,
        knob: &Knob,
        value: &str,
        write: impl Fn(&Knob, &str) -> io::Result<()>,
    ) -> Result<bool, TurnError> {
        let was = knob.value().ok_or_else(|| TurnError::Absent(knob.clone()))?;
        if was == value {
            return Ok(false);
        }
        if !knob.is_believable(&was) || !knob.is_believable(value) {
            return Err(TurnError::Odd { knob: knob.clone(), was, value: value.to_owned() });
        }
        if !self.knobs.contains_key(knob) {
            let was = knob.former(was.clone());
            self.append(&Record::Knob(Turned { knob: knob.clone(), was: was.clone() }))?;
            self.knobs.insert(knob.clone(), was);
        }
        write(knob, value).map_err(TurnError::Refused)?;
        let now = settled(knob, &was, value);
        if !has_obeyed(&was, value, &now) {
            write(knob, &was).map_err(TurnError::Refused)?;
            return Err(TurnError::Disobeyed { knob: knob.clone(), value: value.to_owned(), now });
        }
        Ok(true)
    }

    /// The value of a knob before its first turn; `None` if it has not been turned, or is back.
    pub fn before(&self, knob: &Knob) -> Option<&str> {
        self.knobs.get(knob).map(String::as_str)
    }

    /// Puts all knobs back. Returns an error message for each failure. A knob that could not be put back stays listed
    /// with its value before the first turn.
    pub fn turn_back(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        for (knob, was) in self.knobs.clone() {
            let turned = Turned { knob, was };
            if let Err(error) = turned.put_back() {
                failed.push(error);
                continue;
            }
            self.knobs.remove(&turned.knob);
            failed.extend(self.append(&Record::KnobBack(turned.knob)).err().map(|e| e.to_string()));
        }
        failed
    }

    /// Records the power save of a wireless interface at the first call, then switches it. Returns false if it has the
    /// state already.
    ///
    /// # Errors
    /// The change could not be recorded, and was not made; or the kernel refused it ([`Radio::power_save`]).
    pub fn power_save(&mut self, radio: &Radio, on: bool) -> Result<bool, TurnError> {
        let refused = |error| TurnError::Refused(of_radio(radio, error));
        if !radio.is_believable() {
            let why = "no record may have this name, so it stays as it is; rename the interface in ASCII";
            return Err(refused(io::Error::other(why)));
        }
        let was_on = radio.power_save().map_err(refused)?;
        if was_on == on {
            return Ok(false);
        }
        if !self.radios.contains_key(radio) {
            self.append(&Record::PowerSave(PowerSave { radio: radio.clone(), was_on }))?;
            self.radios.insert(radio.clone(), was_on);
        }
        radio.set_power_save(on).map_err(refused)?;
        Ok(true)
    }

    /// Puts the power save of all wireless interfaces back, as [`Journal::turn_back`] does for knobs.
    pub fn power_save_back(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        for (radio, was_on) in self.radios.clone() {
            let switched = PowerSave { radio, was_on };
            if let Err(error) = switched.put_back() {
                failed.push(error);
                continue;
            }
            self.radios.remove(&switched.radio);
            failed.extend(self.append(&Record::PowerSaveBack(switched.radio)).err().map(|e| e.to_string()));
        }
        failed
    }

    /// True if all knobs, wireless interfaces and clamps are back.
    pub fn has_energy_back(&self) -> bool {
        self.knobs.is_empty() && self.radios.is_empty() && self.clamped.is_empty()
    }

    fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        if self.lines_added >= LINES_BEFORE_REWRITE {
            self.rewrite().map_err(|e| io_error(&self.path, e))?;
        }
        self.lines_added += 1;
        self.append_whole(record).map_err(|e| io_error(&self.path, e))
    }

    /// Appends the whole record or nothing. If the disk is full, the kernel writes the first part of a record; the next
    /// record would continue this line, and no reader would accept the file.
    fn append_whole(&mut self, record: &Record) -> io::Result<()> {
        if self.file.metadata()?.len() != self.length {
            self.file.set_len(self.length)?; // was not possible when the record was written
        }
        if let Err(error) = write_line(&mut self.file, &mut self.line, record) {
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += self.line.len() as u64;
        Ok(())
    }

    /// Replaces the file with one that contains only the changes still to be undone. The replacement is atomic.
    fn rewrite(&mut self) -> io::Result<()> {
        let aside = self.path.with_extension("new");
        let _ = fs::remove_file(&aside);
        let mut file = options().create_new(true).open(&aside)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let Inherited { threads: first_threads, dispatched: first_dispatched } = &self.inherited;
        let threads = self.threads.values().filter(|t| !first_threads.contains_key(&t.tid.0));
        let threads = threads.chain(first_threads.values()).map(|t| Record::Thread(*t));
        let features = self.features.iter().map(|f| Record::Feature(f.clone()));
        let dispatched = self.dispatched.values().filter(|d| !first_dispatched.contains_key(&d.thread.tid.0));
        let dispatched = dispatched.chain(first_dispatched.values()).map(|d| Record::Dispatched(d.clone()));
        let turned = |(knob, was): (&Knob, &String)| Record::Knob(Turned { knob: knob.clone(), was: was.clone() });
        let knobs = self.knobs.iter().map(turned);
        let switched = |(radio, was_on): (&Radio, &bool)| PowerSave { radio: radio.clone(), was_on: *was_on };
        let radios = self.radios.iter().map(|radio| Record::PowerSave(switched(radio)));
        let clamped = self.clamped.values().map(|clamped| Record::Clamped(*clamped));
        let boot = std::iter::once(Record::Boot(release::boot_id()));
        for record in boot.chain(threads).chain(dispatched).chain(features).chain(knobs).chain(radios).chain(clamped) {
            write_line(&mut file, &mut self.line, &record)?;
        }
        fs::rename(&aside, &self.path)?;
        self.length = file.metadata()?.len();
        (self.file, self.lines_added) = (file, 0);
        Ok(())
    }
}

/// True if a knob that held `was` and was set to `value` took it. The kernel may round a number or limit it to its own
/// range, so a number has obeyed if it came nearer or is within 2 %.
fn has_obeyed(was: &str, value: &str, now: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    match (number(was), number(value), number(now)) {
        (Some(was), Some(value), Some(now)) => {
            let off = now.abs_diff(value);
            off < was.abs_diff(value) || off <= value / 50
        }
        _ => now == value,
    }
}

/// The value of a knob that held `was` and was set to `value`, as soon as it has obeyed; the present one after [`SETTLES`].
fn settled(knob: &Knob, was: &str, value: &str) -> String {
    let begin = std::time::Instant::now();
    loop {
        let now = knob.value().unwrap_or_default();
        if has_obeyed(was, value, &now) || begin.elapsed() >= SETTLES {
            return now;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn io_error(path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
