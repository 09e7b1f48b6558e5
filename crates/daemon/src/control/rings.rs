//! The control thread's end of an application's ring: reads records, promises the next look, publishes the grant.
//!
//! ```text
//!          ┌────────────── again, at most ROUNDS times ──────────────┐
//! take ≤ batch records ─> feed the host ─> promise the next look ─> new records, or promise changed?
//!                                                                    └── no ──> sleep
//! ```
//! The look after the promise makes the promise safe: the writer of a record that arrived between the last read and
//! the promise saw the old promise and may not have woken this thread (see [`qfabric_types::ring`]).

use std::os::fd::OwnedFd;

use qfabric_shm::SharedRing;
use qfabric_types::ring::{Consumer, Grant, JobEvent};
use qfabric_types::{Instant, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::flood::Flood;
use crate::closer::Foreign;

/// Counters of one ring, since its start. They include every lost record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingCounters {
    /// Records read and given to the host.
    pub taken: u64,
    /// Records that were invalid.
    pub rejected: u64,
    /// Times that the ring was not read until the window ended, because it held more than the limit.
    pub flooded: u64,
    /// Records that the application dropped because the ring was full, as the application itself reports.
    pub dropped: u64,
    pub wakes: u64,
    /// Times that its wake-ups were ignored until the window ended.
    pub silenced: u64,
}

/// A ring in use by its application.
pub(crate) struct Ring {
    memory: SharedRing,
    /// The eventfd that the application writes to.
    pub wake: OwnedFd,
    /// The connection; closed by the application or by its end. It may hold descriptors of the application, which the
    /// control thread does not close.
    pub lease: Foreign,
    consumer: Consumer,
    flood: Flood,
    /// The grant in force changed since it was last published.
    pub changed: bool,
    promised: Instant,
    /// Wake-ups are ignored until the window ends.
    silent: bool,
    /// The ring is not read until the window ends.
    unread: bool,
    counters: RingCounters,
}

/// The result of one round over a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// No record is left, and the promise is written.
    Settled,
    /// Records arrived or the promise changed; look again before sleeping.
    Again,
}

impl Ring {
    pub(super) fn new(memory: SharedRing, wake: OwnedFd, lease: Foreign, period: Nanos) -> Self {
        Ring {
            memory,
            wake,
            lease,
            consumer: Consumer::default(),
            flood: Flood::new(period),
            changed: true,
            promised: Instant::ZERO,
            silent: false,
            unread: false,
            counters: RingCounters::default(),
        }
    }

    /// Reads at most `room` records into `batch`, and no more than the limit of the window. Other records stay in
    /// the ring; the application drops new records while the ring is full.
    pub(super) fn take(&mut self, batch: &mut Vec<JobEvent>, room: usize) -> usize {
        batch.clear();
        while batch.len() < room && !self.unread {
            let rejected = self.consumer.rejected;
            let event = self.consumer.take(&self.memory);
            let looked_at = self.consumer.rejected - rejected + u64::from(event.is_some());
            self.unread = !self.flood.records(looked_at);
            self.counters.flooded += u64::from(self.unread);
            let Some(event) = event else { break };
            batch.push(event);
        }
        self.counters.taken += batch.len() as u64;
        batch.len()
    }

    /// Whether the promise is due, or the grant must be published.
    pub(super) fn needs_promise(&self, now: Instant) -> bool {
        self.changed || (self.promised != Instant::ZERO && self.promised <= now)
    }

    /// Promises the next look at `moment`, unless that is promised already. A time in the past is no promise.
    pub(super) fn promise(&mut self, moment: Instant, taken: usize, now: Instant) -> Round {
        let moment = if moment > now { moment } else { Instant::ZERO };
        let moved = moment != self.promised;
        if moved {
            self.memory.promise_look(moment);
            self.promised = moment;
        }
        if moved || taken > 0 { Round::Again } else { Round::Settled }
    }

    /// From now on the application reports its checkpoints.
    pub(super) fn ask_for_checkpoints(&self) {
        self.memory.ask_for_checkpoints();
    }

    /// Whether the application has closed its end, before the next turn handles it. One system call, no waiting.
    pub(super) fn is_abandoned(&self) -> bool {
        let mut asked = [PollFd::new(&self.lease, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().intersects(closed)
    }

    /// Publishes the grant in force to the application.
    pub(super) fn publish(&mut self, grant: Grant) {
        self.changed = false;
        self.memory.publish(grant);
    }

    /// Counts a wake-up. Returns whether to ignore further ones from now on.
    pub(super) fn woken(&mut self) -> bool {
        self.counters.wakes += 1;
        let silence = !self.flood.wake() && !self.silent;
        self.silent |= silence;
        self.counters.silenced += u64::from(silence);
        silence
    }

    /// Begins the next window if the present one is over. Returns whether to accept wake-ups again.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let turned = self.flood.turn(now);
        self.unread &= !turned;
        turned && std::mem::take(&mut self.silent)
    }

    /// Adapts the limits to another period.
    pub(super) fn set_period(&mut self, period: Nanos) {
        self.flood = Flood::new(period);
    }

    /// When the control thread must look at this ring without a wake-up.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let promised = (self.promised != Instant::ZERO).then_some(self.promised);
        let unheard = (self.silent || self.unread).then_some(self.flood.ends());
        promised.into_iter().chain(unheard).min()
    }

    /// The counters, including those that the consumer and the application keep.
    pub(super) fn counters(&self) -> RingCounters {
        RingCounters { rejected: self.consumer.rejected, dropped: self.memory.dropped(), ..self.counters }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::closer::{Closer, testing::slow_to_close};
    use crate::control::sources::wake_descriptor;
    use qfabric_linux::testing::Watchdog;
    use qfabric_types::ring::{CAPACITY, Producer, PushOutcome};
    use qfabric_types::{Foresight, JobRecord};

    fn ring() -> (Ring, SharedRing) {
        let (ours, file) = SharedRing::create().unwrap();
        let lease = Foreign::new(wake_descriptor().unwrap(), 0, &Closer::default());
        (Ring::new(ours, wake_descriptor().unwrap(), lease, Nanos::from_millis(40)), SharedRing::map(file).unwrap())
    }

    #[test]
    fn the_end_of_a_ring_does_not_wait_for_descriptors_that_its_application_sent() {
        let _watchdog = Watchdog::start("the end of a ring");
        let (lease, client) = UnixStream::pair().unwrap();
        let (near, far) = slow_to_close();
        qfabric_shm::fds::send(&client, b"x", &[near.as_fd()]).unwrap();
        drop((near, client));
        let (mut ring, _applications) = ring();
        ring.lease = Foreign::new(lease.into(), 7, &Closer::default());
        drop(ring);
        drop(far);
    }

    fn job(k: u64) -> JobEvent {
        let (release, finish) = (Instant::new(k), Instant::new(k + 1));
        JobEvent::End(JobRecord { k, release, finish, cost: Nanos::new(1), next: Foresight::Nothing })
    }

    #[test]
    fn a_look_reads_what_fits_and_leaves_the_rest() {
        let (mut ours, theirs) = ring();
        let mut producer = Producer::default();
        for k in 0..10 {
            producer.push(&theirs, job(k), Instant::new(1));
        }
        ours.turn(Instant::new(1));
        let mut batch = Vec::new();
        assert_eq!((ours.take(&mut batch, 8), batch.len()), (8, 8));
        assert_eq!((ours.take(&mut batch, 8), batch.len()), (2, 2));
        assert_eq!(batch[1], job(9));
    }

    #[test]
    fn a_changed_promise_needs_another_look_and_an_unchanged_one_does_not() {
        let (mut ours, theirs) = ring();
        let (now, later) = (Instant::new(10), Instant::new(20));
        assert_eq!(ours.promise(later, 0, now), Round::Again);
        assert_eq!(ours.promise(later, 0, now), Round::Settled);
        assert_eq!(ours.promise(later, 1, now), Round::Again);
        assert_eq!(Producer::default().push(&theirs, job(0), Instant::new(15)), PushOutcome::Quiet);
        assert_eq!(ours.next_look(), Some(later));
    }

    #[test]
    fn a_time_in_the_past_promises_no_look() {
        let (mut ours, theirs) = ring();
        ours.promise(Instant::new(20), 0, Instant::new(10));
        ours.promise(Instant::new(20), 0, Instant::new(20));
        assert_eq!(Producer::default().push(&theirs, job(0), Instant::new(20)), PushOutcome::Wake);
        assert_eq!(ours.next_look(), None);
    }

    #[test]
    fn a_flooding_application_is_read_no_faster_than_the_limit() {
        let (mut ours, theirs) = ring();
        let mut producer = Producer::default();
        ours.turn(Instant::new(1));
        let mut batch = Vec::new();
        for _ in 0..20 {
            while producer.push(&theirs, job(0), Instant::new(1)) != PushOutcome::Dropped {}
            while ours.take(&mut batch, 64) > 0 {}
        }
        let (counters, end) =
            (ours.counters(), ours.next_look().expect("the control thread must look again and read on"));
        assert!(counters.taken < 2 * CAPACITY as u64, "{counters:?}");
        assert_eq!((counters.flooded, counters.dropped), (1, 20));
        ours.turn(end);
        assert!(ours.take(&mut batch, 64) > 0, "no record in the ring is lost");
    }

    #[test]
    fn invalid_records_count_against_the_limit() {
        let (mut ours, theirs) = ring();
        let mut producer = Producer::default();
        let invalid = JobEvent::Begin { k: 0, known: Foresight::Hint(f64::NAN) };
        ours.turn(Instant::new(1));
        let mut batch = Vec::new();
        for _ in 0..20 {
            for k in 1..=CAPACITY as u64 {
                let event = if k < CAPACITY as u64 { invalid } else { job(k) };
                producer.push(&theirs, event, Instant::new(1));
            }
            while ours.take(&mut batch, 64) > 0 {}
        }
        let counters = ours.counters();
        assert!(
            counters.taken + counters.rejected <= 2 * CAPACITY as u64,
            "at most one look beyond the limit: {counters:?}"
        );
        assert_eq!(counters.flooded, 1);
    }

    #[test]
    fn too_many_wake_ups_are_silenced_once_until_the_window_ends() {
        let (mut ours, _theirs) = ring();
        ours.turn(Instant::new(1));
        assert_eq!((0..1_000).filter(|_| ours.woken()).count(), 1);
        assert!(ours.next_look().is_some(), "the control thread must accept wake-ups again");
        assert!(!ours.turn(Instant::new(2)));
        assert!(ours.turn(Instant::new(200_000_000)));
        assert_eq!(ours.next_look(), None);
    }
}
