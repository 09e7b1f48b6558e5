//! Limits how fast new threads are attached, so that a program that creates threads very fast costs the control
//! thread a bounded part of its time. Up to [`AT_ONCE`] threads are attached per window, up to [`WAITING`] more
//! wait for later windows, and the rest are never attached.

use std::collections::VecDeque;

use qfabric_types::{Instant, Nanos, ThreadId};

const WINDOW: Nanos = Nanos::from_millis(100);
/// Threads attached at once per window: enough for a program that starts a thread pool on a large machine.
const AT_ONCE: usize = 128;
/// Threads that may wait for later windows. Most threads of a fork bomb have ended before their turn.
const WAITING: usize = 512;

/// The new threads of one application.
#[derive(Debug, Default)]
pub(crate) struct Births {
    ends: Instant,
    attached: usize,
    waiting: VecDeque<ThreadId>,
}

/// How a new thread is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Birth {
    /// Attach it now.
    Now,
    /// It waits for a later window.
    Later,
    /// It stays under the normal scheduler.
    Never,
}

impl Births {
    /// Decides about a thread that has appeared.
    pub(super) fn born(&mut self, thread: ThreadId, now: Instant) -> Birth {
        self.turn(now);
        if self.attached < AT_ONCE && self.waiting.is_empty() {
            self.attached += 1;
            return Birth::Now;
        }
        if self.waiting.len() >= WAITING {
            return Birth::Never;
        }
        self.waiting.push_back(thread);
        Birth::Later
    }

    /// Removes a waiting thread that has ended.
    pub(super) fn gone(&mut self, thread: ThreadId) {
        self.waiting.retain(|waiting| *waiting != thread);
    }

    /// The next waiting thread that may be attached now.
    pub(super) fn due(&mut self, now: Instant) -> Option<ThreadId> {
        self.turn(now);
        if self.attached >= AT_ONCE {
            return None;
        }
        let thread = self.waiting.pop_front()?;
        self.attached += 1;
        Some(thread)
    }

    /// When the next window begins, if a thread waits.
    pub(super) fn next_turn(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.ends)
    }

    fn turn(&mut self, now: Instant) {
        if now >= self.ends {
            (self.ends, self.attached) = (now + WINDOW, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(ms: u64) -> Instant {
        Instant::new(1) + Nanos::from_millis(ms)
    }

    #[test]
    fn a_thread_pool_is_attached_at_once() {
        let mut births = Births::default();
        assert!((0..128).all(|i| births.born(ThreadId(i), moment(0)) == Birth::Now));
        assert_eq!(births.next_turn(), None);
    }

    #[test]
    fn a_fork_bomb_waits_and_then_is_left_out() {
        let mut births = Births::default();
        let outcomes: Vec<_> = (0..2_000).map(|i| births.born(ThreadId(i), moment(0))).collect();
        let count = |birth| outcomes.iter().filter(|outcome| **outcome == birth).count();
        assert_eq!([count(Birth::Now), count(Birth::Later), count(Birth::Never)], [AT_ONCE, WAITING, 2_000 - 640]);
        assert_eq!(births.due(moment(99)), None);
        let due = std::iter::from_fn(|| births.due(moment(100))).count();
        assert_eq!(due, AT_ONCE);
    }

    #[test]
    fn a_thread_that_ended_while_it_waited_is_not_attached() {
        let mut births = Births::default();
        for i in 0..130 {
            births.born(ThreadId(i), moment(0));
        }
        births.gone(ThreadId(128));
        assert_eq!(births.due(moment(100)), Some(ThreadId(129)));
        assert_eq!(births.due(moment(100)), None);
    }
}
