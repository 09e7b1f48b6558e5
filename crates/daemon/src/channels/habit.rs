//! How often a connection sends messages, and what follows from it: the thread that reads it, and whether this service
//! sleeps until the connection wakes it or looks at its ring at short intervals.
//!
//! ```text
//! 16 wake-ups, each within 100 µs of the one before ──> busy: the socket's thread reads the connection
//! busy, and its ring is empty ──> the thread looks again after 50 µs; meanwhile the connection need not wake it
//!                                 (after 150 µs if it found few, and the application queues large events that have
//!                                 no deadlines)
//! 4 looks without a message ──> the connection wakes the thread again
//! ```
//!
//! A real-time thread that is woken for each event takes it before the publisher writes the next one, so that no batch
//! ever forms, and each event costs a wake-up in each process on its way.

use qfabric_channel::Limits;
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel_wire::SubmitRequest;
use qfabric_types::{Instant, Nanos};

/// A wake-up within this time of the one before is quick.
const OFTEN: Nanos = Nanos::from_micros(100);
/// After this number of quick wake-ups in a row, a connection is busy until it is quiet for some time.
const QUICK: u8 = 16;
const QUIET: Nanos = Nanos::from_millis(10);
/// Time between two looks at the ring of a busy connection: the longest additional latency of its events.
const LOOK: Nanos = Nanos::from_micros(50);
/// The same, if the application sends large events without deadlines, does not wait for their answers, and the last
/// look found less than [`ENOUGH`]. At 20,000 events a second, a look after 50 µs finds one event. Each look costs a
/// timer, a wake-up of the network's thread, a write, and a wake-up of the other host, so several events have to share
/// these.
const LOOK_FOR_LARGE: Nanos = Nanos::from_micros(150);
/// Messages that share the costs of a look. An application that writes more in [`LOOK`] would soon have to wait for
/// answers: it may have 192 KiB of events without them.
const ENOUGH: usize = 4;
/// Bytes of the smallest large event. Smaller ones come at higher rates, so that a look after 50 µs finds several.
const LARGE: usize = 4 << 10;
/// Bytes of the largest one. A longer event comes in parts, and the application soon waits: for room in the ring, or
/// for answers, because it may have 192 KiB or one event without them.
const LARGEST: usize = Limits::WHOLE;
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
    /// The last event was large and had no deadline, and the application does not wait for its answer.
    queues_large: bool,
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

    /// Records an event.
    pub(super) fn submitted(&mut self, event: &SubmitRequest<'_>) {
        let is_urgent = !event.keep || event.deadline_ns != 0;
        self.queues_large = !is_urgent && (LARGE..=LARGEST).contains(&event.payload.len());
    }

    /// Records a part of an event that is not complete.
    pub(super) fn sent_part(&mut self) {
        self.queues_large = false;
    }

    /// Records that the ring is empty now, after `read` messages. True: the thread should look again.
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

    /// Time to the next look, after one that found `read` messages.
    pub(super) fn look(&self, read: usize) -> Nanos {
        if self.queues_large && read < ENOUGH { LOOK_FOR_LARGE } else { LOOK }
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
            let due = now + habit.look(read);
            self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
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
    fn large_events_that_nobody_waits_for_gather_for_longer_unless_another_connection_is_due() {
        let (mut looks, now, bytes) = (Looks::default(), Instant::ZERO + QUIET, [0_u8; LARGEST + 1]);
        let queued = |most: usize| SubmitRequest { keep: true, payload: &bytes[..most], ..SubmitRequest::default() };
        let large = queued(LARGE);
        let mut due = |id, events: &[SubmitRequest<'_>]| {
            let mut habit = Habit { is_busy: true, ..Habit::default() };
            events.iter().for_each(|event| habit.submitted(event));
            assert!(looks.again(id, &mut habit, events.len(), now));
            looks.next()
        };
        assert_eq!(due(1, &[queued(100), large]), Some(now + LOOK_FOR_LARGE));
        assert_eq!(due(2, &[queued(LARGEST)]), Some(now + LOOK_FOR_LARGE));
        let waited_for = SubmitRequest { keep: false, ..large };
        assert_eq!(due(3, &[large, waited_for]), Some(now + LOOK), "the application may wait for it");
        assert_eq!(due(4, &[large]), Some(now + LOOK));
        assert_eq!(looks.take(now + LOOK), [1, 2, 3, 4]);
        let in_time = SubmitRequest { deadline_ns: 1, ..large };
        for (event, read) in [(queued(LARGE - 1), 1), (queued(LARGEST + 1), 1), (in_time, 1), (large, ENOUGH)] {
            let (mut habit, bytes) = (Habit { is_busy: true, ..Habit::default() }, event.payload.len());
            habit.submitted(&event);
            assert!(looks.again(5, &mut habit, read, now));
            assert_eq!((looks.next(), looks.take(now + LOOK)), (Some(now + LOOK), vec![5]), "{bytes} B, {read} read");
        }
    }

    #[test]
    fn a_connection_that_is_not_busy_wakes_the_service() {
        let mut looks = Looks::default();
        assert!(!looks.again(7, &mut Habit::default(), 5, Instant::ZERO) && looks.next().is_none());
    }
}
