//! How fast new threads are attached, so that a program which forks like mad costs a bounded part of the
//! control thread's time: a number per window at once, a bounded queue after that, and the rest never.

use std::collections::VecDeque;

use qfabric_types::{Instant, Nanos, ThreadId};

/// Length of a window.
const WINDOW: Nanos = Nanos::from_millis(100);
/// Attached at once per window: a program that starts a thread pool on a large machine fits.
const AT_ONCE: usize = 128;
/// Waiting for the next windows; most of a fork bomb's threads are gone before their turn.
const WAITING: usize = 512;

/// The births of one application.
#[derive(Debug, Default)]
pub(crate) struct Births {
    ends: Instant,
    attached: usize,
    waiting: VecDeque<ThreadId>,
}

/// What to do with a birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Birth {
    /// Attach it now.
    Now,
    /// It waits for a later window.
    Later,
    /// It is left under the normal scheduler.
    Never,
}

impl Births {
    /// A thread has appeared.
    pub fn born(&mut self, thread: ThreadId, now: Instant) -> Birth {
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

    /// A waiting thread has ended.
    pub fn gone(&mut self, thread: ThreadId) {
        self.waiting.retain(|waiting| *waiting != thread);
    }

    /// The next thread whose turn it is.
    pub fn due(&mut self, now: Instant) -> Option<ThreadId> {
        self.turn(now);
        if self.attached >= AT_ONCE {
            return None;
        }
        let thread = self.waiting.pop_front()?;
        self.attached += 1;
        Some(thread)
    }

    /// When somebody's turn comes, if anybody waits.
    pub fn next_turn(&self) -> Option<Instant> {
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
    fn who_is_gone_before_its_turn_is_not_attached() {
        let mut births = Births::default();
        for i in 0..130 {
            births.born(ThreadId(i), moment(0));
        }
        births.gone(ThreadId(128));
        assert_eq!(births.due(moment(100)), Some(ThreadId(129)));
        assert_eq!(births.due(moment(100)), None);
    }
}
