//! What the kernel may be holding in reservations, thread by thread: the last line of defence of Σ ≤ U_lub.
//! Shares in millionths of one CPU.
//!
//! The supervisor's books are about applications and about what should be; this is about settings on their
//! way. A thread counts with the largest of what is applied, what was told and not answered, and what was
//! lowered less than one server period ago. Only what fits beside all that is told (AQuoSA §3.2).

use qfabric_types::{Instant, Nanos, Share};

use crate::thread::{Thread, Value, Wait, millionths};

/// Σ over threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    held: u64,
    /// What threads that were let go may still be consuming, and until when.
    bequests: Vec<(Instant, u64)>,
}

impl Ledger {
    pub(crate) fn held(&self) -> Share {
        Share::from_ppm(self.held.min(u32::MAX.into()) as u32)
    }

    /// Whether `thread` may be told `value`.
    pub(crate) fn fits(&self, thread: &Thread, value: Option<Value>, capacity: Share) -> bool {
        let new = millionths(value);
        new <= thread.booked || self.held - thread.booked + new <= u64::from(capacity.ppm())
    }

    /// `value` is told to the mechanism.
    pub(crate) fn told(&mut self, thread: &mut Thread, value: Option<Value>) {
        thread.wait = Wait::Answer(value);
        self.book(thread, millionths(value).max(thread.booked));
    }

    /// The mechanism obeyed. A decrease stays booked for another server period.
    pub(crate) fn obeyed(&mut self, thread: &mut Thread, value: Option<Value>, now: Instant) {
        let before = thread.applied.map_or(Nanos::ZERO, |old| old.reservation.period());
        thread.applied = value;
        (thread.wait, thread.busy) = (Wait::No, 0);
        let settled = millionths(value) >= thread.booked;
        // An earlier decrease, such as from a reservation it has given up, may take longer still.
        let earlier = if thread.free_at == Instant::NEVER { now } else { thread.free_at };
        thread.free_at = if settled { Instant::NEVER } else { earlier.max(now + before) };
    }

    /// The mechanism did not obey: the old value is in force.
    pub(crate) fn failed(&mut self, thread: &mut Thread, wait: Wait) {
        thread.wait = wait;
        if thread.free_at == Instant::NEVER {
            self.book(thread, millionths(thread.applied));
        }
    }

    /// Frees what is due. Answers whether anything was.
    pub(crate) fn free(&mut self, thread: &mut Thread, now: Instant) -> bool {
        if now < thread.free_at {
            return false;
        }
        thread.free_at = Instant::NEVER;
        let told = if let Wait::Answer(value) = thread.wait { millionths(value) } else { 0 };
        self.book(thread, millionths(thread.applied).max(told));
        true
    }

    /// The thread is gone, and with it what it held.
    pub(crate) fn forget(&mut self, thread: &mut Thread) {
        self.book(thread, 0);
    }

    /// The thread is let go; what it was lowered from stays booked until that has taken effect.
    pub(crate) fn bequeath(&mut self, thread: &mut Thread, now: Instant) {
        if thread.free_at != Instant::NEVER && thread.free_at > now {
            self.bequests.push((thread.free_at, thread.booked));
        } else {
            self.held -= thread.booked;
        }
        thread.booked = 0;
    }

    /// Frees the bequests that are due.
    pub(crate) fn free_bequests(&mut self, now: Instant) {
        let held = &mut self.held;
        self.bequests.retain(|&(due, booked)| {
            *held -= if due <= now { booked } else { 0 };
            due > now
        });
    }

    /// When the next bequest is due.
    pub(crate) fn next_bequest(&self) -> Instant {
        self.bequests.iter().map(|&(due, _)| due).min().unwrap_or(Instant::NEVER)
    }

    fn book(&mut self, thread: &mut Thread, booked: u64) {
        self.held = self.held - thread.booked + booked;
        thread.booked = booked;
    }
}
