//! Reads a journal, and undoes the changes that it lists and that are still in force.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use qfabric_types::{Nanos, ThreadId};

use super::clamps::Clamped;
use super::file::{check_file_of, open_held, options, whole_text};
use super::{
    Dispatched, FILE, JournalError, PowerSave, Record, Restored, Switched, Touched, Turned, io_error, settled,
};
use crate::leaving::{Departure, Step};
use crate::power::{Knob, Radio};
use crate::sched_attr::{Policy, SchedAttr};
use crate::{dispatcher, files, hrtick, release, threads};

/// Longest wait for resting threads after they are put back. A reservation of such a thread before its rest is over is
/// refused.
const LONGEST_END: Nanos = Nanos::from_millis(1_000);

/// Undoes the changes that the journal in `dir` lists and that are still in force; safe to repeat. Does nothing if
/// there is no journal, and changes nothing if the content is not valid. Returns when the threads may be reserved
/// again, at most one second later.
pub fn restore(dir: &Path) -> Result<Restored, JournalError> {
    let path = dir.join(FILE);
    let Some(file) = open_held(&path, false)? else { return Ok(Restored::default()) };
    let Some(left) = read(&path, &file)? else { return Ok(Restored::default()) };
    let (done, rest) = left.put_back();
    // The caller may reserve for the same threads next.
    std::thread::sleep(Duration::from_nanos(rest.min(LONGEST_END).get()));
    if done.failed.is_empty() {
        file.set_len(0).map_err(|e| io_error(&path, e))?;
    }
    Ok(done)
}

/// Like [`restore`], but for the service itself if the thread that holds the journal does not respond: this process
/// already holds the lock on the file. Returns when the threads are put back; some of them may not be reserved again
/// yet.
pub fn restore_own(dir: &Path) -> Result<Restored, JournalError> {
    let path = dir.join(FILE);
    let file = options().open(&path).map_err(|e| io_error(&path, e))?;
    let left = read(&path, &file)?.unwrap_or_default();
    Ok(left.put_back().0)
}

/// Puts back each thread that is still the recorded one and still reserved. All departures run at the same time: the
/// last one ends after about 2 s, or after two of its periods. Returns the longest time for which a thread must not be
/// reserved again.
pub(super) fn put_back_all(threads: impl Iterator<Item = Touched>, done: &mut Restored) -> Nanos {
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

/// `None`: the id belongs to another thread now, or the thread was already put back.
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

pub(super) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Restores the timer slack, without reporting a failure: nearly every thread has the kernel's default (50 µs).
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
    fn is_to_put_back(&self) -> bool {
        hrtick::state(&self.root, self.feature) != if self.was_on { hrtick::State::On } else { hrtick::State::Off }
    }

    pub(super) fn put_back(&self) -> Result<(), String> {
        hrtick::set(&self.root, self.feature, self.was_on).map_err(|s| format!("{}: {s:?}", self.feature.word()))
    }
}

impl Turned {
    /// False for a knob that cannot be read but exists: its CPUs are offline, and the kernel keeps its value.
    fn is_back(&self) -> bool {
        self.knob.value().map_or_else(|| self.knob.is_absent(), |now| now == self.was)
    }

    /// A knob that has vanished needs nothing: its device was removed.
    pub(super) fn put_back(&self) -> Result<(), String> {
        match self.knob.value() {
            Some(now) if now != self.was => {
                self.knob.write(&self.was).map_err(|error| error.to_string())?;
                settled(&self.knob, &now, &self.was);
                Ok(())
            }
            None if !self.knob.is_absent() => {
                Err(format!("{} cannot be read; if its CPUs are offline, set them online", self.knob))
            }
            _ => Ok(()),
        }
    }
}

impl PowerSave {
    /// An interface that has vanished needs nothing: its card was removed.
    pub(super) fn put_back(&self) -> Result<(), String> {
        let back = self.radio.power_save().and_then(|on| match on == self.was_on {
            true => Ok(()),
            false => self.radio.set_power_save(self.was_on),
        });
        match back {
            Err(error) if Radio::is_gone(&error) => Ok(()),
            other => other.map_err(|error| of_radio(&self.radio, error).to_string()),
        }
    }
}

pub(super) fn of_radio(radio: &Radio, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{radio}: {error}"))
}

/// The changes that a journal lists.
#[derive(Debug, Default)]
pub(super) struct Unrestored {
    pub(super) threads: BTreeMap<i32, Touched>,
    pub(super) dispatched: BTreeMap<i32, Dispatched>,
    pub(super) features: Vec<Switched>,
    pub(super) knobs: BTreeMap<Knob, String>,
    pub(super) radios: BTreeMap<Radio, bool>,
    pub(super) clamped: BTreeMap<i32, Clamped>,
}

impl Unrestored {
    fn lists_changes(mut self) -> bool {
        self.drop_undone();
        let Unrestored { threads, dispatched, features, knobs, radios, clamped } = self;
        let is_empty = knobs.is_empty() && radios.is_empty() && clamped.is_empty();
        !(threads.is_empty() && dispatched.is_empty() && features.is_empty() && is_empty)
    }

    /// Drops the records of changes that are undone, or whose thread or device is gone.
    pub(super) fn drop_undone(&mut self) {
        self.threads.retain(|_, thread| !matches!(departure(thread), Ok(None)));
        self.dispatched.retain(|_, dispatched| dispatcher::is_changed(dispatched));
        self.features.retain(|switched| switched.is_to_put_back());
        self.knobs.retain(|knob, was| !Turned { knob: knob.clone(), was: was.clone() }.is_back());
        self.radios.retain(|radio, was_on| radio.power_save().is_ok_and(|on| on != *was_on));
        self.clamped.retain(|_, clamped| clamped.is_to_put_back());
    }

    /// Returns the results, and the longest time for which one of the threads must not be reserved again.
    fn put_back(self) -> (Restored, Nanos) {
        let mut done = Restored::default();
        for thread in self.dispatched.values() {
            match dispatcher::put_back(thread) {
                Ok(true) => done.threads += 1,
                Ok(false) => done.skipped += 1,
                Err(error) => done.failed.push(format!("thread {}: {error}", thread.thread.tid)),
            }
        }
        let rest = put_back_all(self.threads.into_values(), &mut done);
        for switched in self.features.iter().rev() {
            match switched.put_back() {
                Ok(()) => done.settings += 1,
                Err(e) => done.failed.push(e),
            }
        }
        for (knob, was) in self.knobs {
            match (Turned { knob, was }).put_back() {
                Ok(()) => done.settings += 1,
                Err(error) => done.failed.push(error),
            }
        }
        for (radio, was_on) in self.radios {
            match (PowerSave { radio, was_on }).put_back() {
                Ok(()) => done.settings += 1,
                Err(error) => done.failed.push(error),
            }
        }
        for clamped in self.clamped.values() {
            match clamped.put_back() {
                Ok(true) => done.threads += 1,
                Ok(false) => done.skipped += 1,
                Err(error) => done.failed.push(format!("thread {}: {error}", clamped.tid)),
            }
        }
        (done, rest)
    }

    fn add(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Boot(_) => return Err("there is a second boot record".into()),
            Record::Thread(thread) => {
                thread.check()?;
                self.threads.insert(thread.tid.0, thread);
            }
            Record::Dispatched(dispatched) => {
                dispatched.thread.check()?;
                self.dispatched.insert(dispatched.thread.tid.0, dispatched);
            }
            Record::Released(tid) => {
                self.threads.remove(&tid.0);
                self.dispatched.remove(&tid.0);
            }
            Record::Feature(f) if !f.is_believable() => {
                return Err(format!("{} is not a path of debugfs", f.root.display()));
            }
            Record::Feature(f) => self.features.push(f),
            Record::Knob(Turned { knob, was }) if !knob.is_believable(&was) => {
                return Err(format!("{knob} with {was:?} is no knob of this program"));
            }
            // The first record has the value before all turns.
            Record::Knob(Turned { knob, was }) => drop(self.knobs.entry(knob).or_insert(was)),
            Record::KnobBack(knob) => drop(self.knobs.remove(&knob)),
            Record::PowerSave(PowerSave { radio, .. }) if !radio.is_believable() => {
                return Err(format!("{radio:?} is no wireless interface"));
            }
            Record::PowerSave(PowerSave { radio, was_on }) => drop(self.radios.entry(radio).or_insert(was_on)),
            Record::PowerSaveBack(radio) => drop(self.radios.remove(&radio)),
            Record::Clamped(clamped) if !clamped.is_believable() => {
                return Err(format!("{clamped:?} is no thread that this program clamps"));
            }
            Record::Clamped(clamped) => drop(self.clamped.insert(clamped.tid.0, clamped)),
            Record::ClampBack(tid) => drop(self.clamped.remove(&tid.0)),
            Record::FeatureBack(name) => self.features.retain(|f| f.feature != name),
        }
        Ok(())
    }
}

impl Touched {
    /// Refuses a record that this program would not write.
    fn check(&self) -> Result<(), String> {
        match () {
            () if !self.was.is_believable() => Err(format!("these are not attributes of a kernel: {:?}", self.was)),
            () if self.tid.0 <= 1 => Err(format!("thread {} is never changed by this program", self.tid)),
            () => Ok(()),
        }
    }
}

impl Switched {
    fn is_believable(&self) -> bool {
        self.root.is_absolute() && !self.root.components().any(|c| c == std::path::Component::ParentDir)
    }
}

/// The changes that are still to be undone; `None` if the file is empty or was written before the last boot.
pub(super) fn read(path: &Path, file: &File) -> Result<Option<Unrestored>, JournalError> {
    read_of(path, file, rustix::process::geteuid().as_raw())
}

/// Like [`read`], for a file of the user `uid`.
pub(super) fn read_of(path: &Path, file: &File, uid: u32) -> Result<Option<Unrestored>, JournalError> {
    let invalid = |line, why| JournalError::Invalid { path: path.to_owned(), line, why };
    check_file_of(file, uid).map_err(|why| invalid(0, why))?;
    let text = whole_text(file).map_err(|e| io_error(path, e))?;
    let whole = &text[..text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1)];
    let mut lines = whole.split_inclusive(|&b| b == b'\n').zip(1..);
    let Some((first, _)) = lines.next() else { return Ok(None) };
    match serde_json::from_slice(first) {
        Ok(Record::Boot(boot)) if boot == release::boot_id() => {}
        Ok(Record::Boot(_)) => return Ok(None),
        _ => return Err(invalid(1, "the first line is not a boot record".into())),
    }
    let mut left = Unrestored::default();
    for (line, number) in lines {
        let record = serde_json::from_slice(line).map_err(|e| invalid(number, e.to_string()))?;
        left.add(record).map_err(|why| invalid(number, why))?;
    }
    Ok(Some(left))
}

/// True if no process holds the journal and it lists no change to undo.
pub(super) fn lists_no_change(path: &Path) -> bool {
    let left = open_held(path, false).and_then(|file| file.map_or(Ok(None), |file| read(path, &file)));
    left.is_ok_and(|left| left.is_none_or(|left| !left.lists_changes()))
}
