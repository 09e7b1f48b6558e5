//! How often a connection sends messages, and what follows from it: the thread that reads it, and whether this service
//! sleeps until the connection wakes it or looks at its ring at short intervals.
//!
//! ```text
//! 16 wake-ups, each within 100 µs of the one before ──> busy: the socket's thread reads the connection
//! busy, and its ring is empty ──> the thread looks again after 50 µs; meanwhile the connection need not wake it
//! 4 looks without a message ──> the connection wakes the thread again
//! ```
//!
//! A real-time thread that is woken for each event takes it before the publisher writes the next one, so that no batch
//! ever forms, and each event costs a wake-up in each process on its way.

use qfabric_types::api::channel::LeaseId;
use qfabric_types::{Instant, Nanos};

/// A wake-up within this time of the one before is quick.
const OFTEN: Nanos = Nanos::from_micros(100);
/// After this number of quick wake-ups in a row, a connection is busy until it is quiet for some time.
const QUICK: u8 = 16;
const QUIET: Nanos = Nanos::from_millis(10);
/// Time between two looks at the ring of a busy connection: the longest additional latency of its events.
const LOOK: Nanos = Nanos::from_micros(50);
/// After this number of looks in a row without a message, the connection has to wake the thread: looking pays only for
/// connections with some thousand messages a second.
const VAIN_LOOKS: u8 = 4;

/// How often a connection wakes this service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Habit {
    /// Time of the last wake-up, or of the last message that was found without one.
    woke: Instant,
    /// Number of successive wake-ups, each within [`OFTEN`] of the one before.
    quick: u8,
    /// Number of successive looks that found no message.
    vain: u8,
    /// The socket's thread reads the connection.
    pub is_busy: bool,
}

impl Habit {
    /// Records a wake-up. True: another thread must read the connection from now on.
    pub(super) fn woke(&mut self, now: Instant) -> bool {
        let since = now.since(std::mem::replace(&mut self.woke, now));
        self.quick = if since < OFTEN { self.quick.saturating_add(1) } else { 0 };
        let is_busy = if self.is_busy { since < QUIET } else { self.quick >= QUICK };
        std::mem::replace(&mut self.is_busy, is_busy) != is_busy
    }

    /// Records that the ring is empty now, after `read` messages. True: the thread should look again after [`LOOK`].
    fn looks_again(&mut self, read: usize, now: Instant) -> bool {
        if !self.is_busy {
            return false;
        }
        if read > 0 {
            (self.woke, self.vain) = (now, 0);
        } else {
            self.vain = self.vain.saturating_add(1);
        }
        let again = self.vain < VAIN_LOOKS;
        self.vain = if again { self.vain } else { 0 };
        again
    }
}

/// The connections whose rings the socket's thread looks at by itself.
#[derive(Debug, Default)]
pub(super) struct Looks {
    due: Option<Instant>,
    leases: Vec<LeaseId>,
}

impl Looks {
    /// The ring of the connection is empty now, after `read` messages. True: the thread looks at it again, so the
    /// connection need not wake it.
    pub(super) fn again(&mut self, id: LeaseId, habit: &mut Habit, read: usize, now: Instant) -> bool {
        if self.leases.contains(&id) {
            return true;
        }
        let again = habit.looks_again(read, now);
        if again {
            self.leases.push(id);
            self.due.get_or_insert(now + LOOK);
        }
        again
    }

    /// Time of the next look.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due
    }

    /// The connections to look at now; none before the time of the next look.
    pub(super) fn take(&mut self, now: Instant) -> Vec<LeaseId> {
        match self.due.is_some_and(|due| due <= now) {
            true => std::mem::take(self).leases,
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_wakes_the_service_often_is_busy_until_it_is_quiet() {
        let (mut habit, mut now) = (Habit::default(), Instant::ZERO + QUIET);
        let mut woke = |us: u64| {
            now = now + Nanos::from_micros(us);
            (habit.woke(now), habit.is_busy)
        };
        assert!((0..100).all(|_| woke(150) == (false, false)));
        let changed = (1..100).find(|_| woke(20) == (true, true));
        assert_eq!(changed, Some(16));
        assert_eq!([woke(20), woke(2_000), woke(11_000)], [(false, true), (false, true), (true, false)]);
    }

    #[test]
    fn a_busy_connection_is_looked_at_until_enough_looks_were_in_vain() {
        let (mut looks, mut now) = (Looks::default(), Instant::ZERO + QUIET);
        let mut habit = Habit { is_busy: true, ..Habit::default() };
        for read in [3, 1, 0, 2] {
            assert!(looks.again(7, &mut habit, read, now) && looks.again(7, &mut habit, 0, now), "one entry");
            assert_eq!((looks.take(now), looks.next()), (vec![], Some(now + LOOK)));
            now = now + LOOK;
            assert_eq!((looks.take(now), looks.next()), (vec![7], None));
        }
        let vain = (1..).find(|_| {
            looks.take(now + LOOK);
            !looks.again(7, &mut habit, 0, now)
        });
        assert_eq!(vain, Some(VAIN_LOOKS));
        assert!(looks.again(7, &mut habit, 0, now), "a message makes the count begin anew");
    }

    #[test]
    fn a_connection_that_is_not_busy_wakes_the_service() {
        let mut looks = Looks::default();
        assert!(!looks.again(7, &mut Habit::default(), 5, Instant::ZERO) && looks.next().is_none());
    }
}
