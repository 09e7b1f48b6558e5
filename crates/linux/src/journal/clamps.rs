//! Clamps of threads: recorded before the first change, and put back.
//!
//! A thread inherits the clamp of the thread that starts it. So a thread without a record whose clamp is one that this
//! journal has set was started after the last call, and its former clamp is that of its program's first thread.

use std::io;

use qfabric_types::ThreadId;
use serde::{Deserialize, Serialize};

use super::undo::is_gone;
use super::{Journal, JournalError, Record, TurnError};
use crate::power::{FULL, clamp_of, set_clamp};
use crate::threads;

/// A thread before its utilization was clamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Clamped {
    pub(super) tid: ThreadId,
    /// As in [`super::Touched`].
    pub(super) start: u64,
    pub(super) was: u32,
}

impl Journal {
    /// Clamps the utilization of a thread; records the former clamp at the first call. `first`: the first thread of its
    /// program. Returns false for a thread that has ended or has no clamp, and for process 1, which no record may name.
    ///
    /// # Errors
    /// The change could not be recorded, and was not made; or the kernel refused it. `EINVAL`: the lower clamp of the
    /// thread is higher, as that of every real-time thread is by default.
    pub fn clamp(&mut self, tid: ThreadId, most: u32, first: ThreadId) -> Result<bool, TurnError> {
        let Some(start) = threads::start_time(tid).filter(|_| tid.0 > 1) else { return Ok(false) };
        let now = match clamp_of(tid) {
            Err(error) if is_gone(&error) => return Ok(false),
            other => other.map_err(TurnError::Refused)?,
        };
        let inherited = self.former_clamp(tid, first, now);
        if !self.has_recorded(tid, start) && (now != most || inherited.is_some()) {
            self.record(Clamped { tid, start, was: inherited.unwrap_or(now) })?;
        }
        if now == most {
            return Ok(true);
        }
        self.set_clamps.insert(most);
        match set_clamp(tid, most) {
            Err(error) if is_gone(&error) => Ok(false),
            other => other.map_err(TurnError::Refused),
        }
    }

    /// Records a thread that inherited a clamp of this journal. Without effect for all others. `first`: as in
    /// [`Journal::clamp`].
    ///
    /// # Errors
    /// The thread could not be recorded.
    pub fn adopt(&mut self, tid: ThreadId, first: ThreadId) -> Result<(), JournalError> {
        if self.set_clamps.is_empty() {
            return Ok(());
        }
        let (Some(start), Ok(now)) = (threads::start_time(tid), clamp_of(tid)) else { return Ok(()) };
        match self.former_clamp(tid, first, now) {
            Some(was) if !self.has_recorded(tid, start) => self.record(Clamped { tid, start, was }),
            _ => Ok(()),
        }
    }

    /// The former clamp of a thread that inherited its clamp `now`; `None` if it did not.
    pub(super) fn former_clamp(&self, tid: ThreadId, first: ThreadId, now: u32) -> Option<u32> {
        if tid == first || !self.set_clamps.contains(&now) {
            return None;
        }
        let of_first = self.clamped.get(&first.0).map(|first| first.was).or_else(|| clamp_of(first).ok());
        Some(of_first.unwrap_or(FULL))
    }

    fn has_recorded(&self, tid: ThreadId, start: u64) -> bool {
        self.clamped.get(&tid.0).is_some_and(|known| known.start == start)
    }

    fn record(&mut self, clamped: Clamped) -> Result<(), JournalError> {
        self.append(&Record::Clamped(clamped))?;
        self.clamped.insert(clamped.tid.0, clamped);
        Ok(())
    }

    /// Gives a thread its former clamp. Without effect if it has ended or was not clamped. Returns false for a thread
    /// under SCHED_DEADLINE, which takes no clamp until it leaves: it stays listed, and a later call puts it back.
    ///
    /// # Errors
    /// The kernel refused the clamp, and the thread stays listed; or the record could not be written.
    pub fn unclamp(&mut self, tid: ThreadId) -> Result<bool, TurnError> {
        let Some(clamped) = self.clamped.get(&tid.0) else { return Ok(true) };
        clamped.put_back().map_err(TurnError::Refused)?;
        if clamped.is_to_put_back() {
            return Ok(false);
        }
        self.clamped.remove(&tid.0);
        self.append(&Record::ClampBack(tid))?;
        Ok(true)
    }

    /// Threads whose utilization is clamped.
    pub fn clamped(&self) -> Vec<ThreadId> {
        self.clamped.values().map(|clamped| clamped.tid).collect()
    }
}

impl Clamped {
    /// True if this program could have written this record.
    pub(super) fn is_believable(&self) -> bool {
        self.tid.0 > 1 && self.was <= FULL
    }

    pub(super) fn is_to_put_back(&self) -> bool {
        threads::start_time(self.tid) == Some(self.start) && clamp_of(self.tid).ok() != Some(self.was)
    }

    /// Returns false if the thread has ended, has its former clamp, or is under SCHED_DEADLINE.
    pub(super) fn put_back(&self) -> io::Result<bool> {
        if !self.is_to_put_back() {
            return Ok(false);
        }
        match set_clamp(self.tid, self.was) {
            Err(error) if is_gone(&error) => Ok(false),
            other => other,
        }
    }
}
