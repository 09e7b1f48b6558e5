//! The control thread's end of an application's ring: taking what is in it, promising the next look,
//! publishing what is granted.
//!
//! ```text
//!          ┌────────────── again, at most ROUNDS times ──────────────┐
//! take ≤ batch records ─> feed the host ─> promise the next look ─> anything new, or promise moved?
//!                                                                    └── no ──> sleep
//! ```
//! The look after the promise is what makes the promise safe: a record that came between the last take and
//! the promise saw the old one and may not have woken us (see [`qfabric_types::ring`]).

use std::os::fd::OwnedFd;

use qfabric_shm::SharedRing;
use qfabric_types::ring::{Consumer, Grant, JobEvent};
use qfabric_types::{Instant, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::flood::Flood;

/// What a ring's life was like so far. All lost records are here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingCounters {
    /// Records taken and fed to the host.
    pub taken: u64,
    /// Records that made no sense.
    pub rejected: u64,
    /// How often it was not read for a while, because it held more than the application can mean.
    pub flooded: u64,
    /// Records the application had to drop, by its own account.
    pub dropped: u64,
    /// Wake-up calls.
    pub wakes: u64,
    /// How often its wake-up calls were not listened to for a while.
    pub silenced: u64,
}

/// A ring in use by its application.
pub(crate) struct Ring {
    memory: SharedRing,
    /// The application writes to it.
    pub wake: OwnedFd,
    /// Closed by the application, or with it.
    pub lease: OwnedFd,
    consumer: Consumer,
    flood: Flood,
    /// What is in force changed since it was last shown.
    pub changed: bool,
    promised: Instant,
    /// Its wake-up calls are not listened to until the window ends.
    silent: bool,
    /// It is not read until the window ends.
    unread: bool,
    counters: RingCounters,
}

/// What one round of looking came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Nothing is left, and the promise stands.
    Settled,
    /// Something came; look again before sleeping.
    Again,
}

impl Ring {
    pub fn new(memory: SharedRing, wake: OwnedFd, lease: OwnedFd, period: Nanos) -> Self {
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

    /// Puts at most `room` records into `batch`, and no more than the window has left: the rest stays where it
    /// is, and what then finds the ring full is dropped by the application itself.
    pub fn take(&mut self, batch: &mut Vec<JobEvent>, room: usize) -> usize {
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

    /// Whether the promise is due, or what is in force is to be shown.
    pub fn needs_promise(&self, now: Instant) -> bool {
        self.changed || (self.promised != Instant::ZERO && self.promised <= now)
    }

    /// Promises the next look at `moment`, unless it is promised already; one that is past promises nothing.
    pub fn promise(&mut self, moment: Instant, taken: usize, now: Instant) -> Round {
        let moment = if moment > now { moment } else { Instant::ZERO };
        let moved = moment != self.promised;
        if moved {
            self.memory.promise_look(moment);
            self.promised = moment;
        }
        if moved || taken > 0 { Round::Again } else { Round::Settled }
    }

    /// Whether the application has closed its end, which the next turn would hear of. One system call, no waiting.
    pub fn is_abandoned(&self) -> bool {
        let mut asked = [PollFd::new(&self.lease, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().intersects(closed)
    }

    /// Shows the application what is in force.
    pub fn publish(&mut self, grant: Grant) {
        self.changed = false;
        self.memory.publish(grant);
    }

    /// Counts a wake-up call; whether to stop listening to further ones now.
    pub fn woken(&mut self) -> bool {
        self.counters.wakes += 1;
        let silence = !self.flood.wake() && !self.silent;
        self.silent |= silence;
        self.counters.silenced += u64::from(silence);
        silence
    }

    /// Begins the next window where one is over; whether to listen to wake-up calls again now.
    pub fn turn(&mut self, now: Instant) -> bool {
        let turned = self.flood.turn(now);
        self.unread &= !turned;
        turned && std::mem::take(&mut self.silent)
    }

    /// Paces records to another period.
    pub fn set_period(&mut self, period: Nanos) {
        self.flood = Flood::new(period);
    }

    /// When the control thread must come back for this ring, if nobody wakes it before.
    pub fn next_look(&self) -> Option<Instant> {
        let promised = (self.promised != Instant::ZERO).then_some(self.promised);
        let unheard = (self.silent || self.unread).then_some(self.flood.ends());
        promised.into_iter().chain(unheard).min()
    }

    /// Its life so far.
    pub fn counters(&self) -> RingCounters {
        RingCounters { rejected: self.consumer.rejected, dropped: self.memory.dropped(), ..self.counters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::sources::wake_descriptor;
    use qfabric_types::ring::{CAPACITY, Producer, Pushed};
    use qfabric_types::{Foresight, JobRecord};

    fn ring() -> (Ring, SharedRing) {
        let (ours, file) = SharedRing::create().unwrap();
        let lease = wake_descriptor().unwrap();
        (Ring::new(ours, wake_descriptor().unwrap(), lease, Nanos::from_millis(40)), SharedRing::map(file).unwrap())
    }

    fn job(k: u64) -> JobEvent {
        let (release, finish) = (Instant::new(k), Instant::new(k + 1));
        JobEvent::End(JobRecord { k, release, finish, cost: Nanos::new(1), next: Foresight::Nothing })
    }

    #[test]
    fn a_look_takes_what_it_has_room_for_and_leaves_the_rest() {
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
    fn a_moved_promise_asks_for_another_look_and_a_kept_one_does_not() {
        let (mut ours, theirs) = ring();
        let (now, later) = (Instant::new(10), Instant::new(20));
        assert_eq!(ours.promise(later, 0, now), Round::Again);
        assert_eq!(ours.promise(later, 0, now), Round::Settled);
        assert_eq!(ours.promise(later, 1, now), Round::Again);
        assert_eq!(Producer::default().push(&theirs, job(0), Instant::new(15)), Pushed::Quiet);
        assert_eq!(ours.next_look(), Some(later));
    }

    #[test]
    fn a_moment_that_is_past_promises_nothing() {
        let (mut ours, theirs) = ring();
        ours.promise(Instant::new(20), 0, Instant::new(10));
        ours.promise(Instant::new(20), 0, Instant::new(20));
        assert_eq!(Producer::default().push(&theirs, job(0), Instant::new(20)), Pushed::Wake);
        assert_eq!(ours.next_look(), None);
    }

    #[test]
    fn a_flooding_application_is_read_no_faster_than_it_can_mean() {
        let (mut ours, theirs) = ring();
        let mut producer = Producer::default();
        ours.turn(Instant::new(1));
        let mut batch = Vec::new();
        for _ in 0..20 {
            while producer.push(&theirs, job(0), Instant::new(1)) != Pushed::Dropped {}
            while ours.take(&mut batch, 64) > 0 {}
        }
        let (counters, end) = (ours.counters(), ours.next_look().expect("somebody must come back and read on"));
        assert!(counters.taken < 2 * CAPACITY as u64, "{counters:?}");
        assert_eq!((counters.flooded, counters.dropped), (1, 20));
        ours.turn(end);
        assert!(ours.take(&mut batch, 64) > 0, "nothing that is in the ring is lost");
    }

    #[test]
    fn records_that_make_no_sense_count_as_those_that_do() {
        let (mut ours, theirs) = ring();
        let mut producer = Producer::default();
        let nonsense = JobEvent::Begin { k: 0, known: Foresight::Hint(f64::NAN) };
        ours.turn(Instant::new(1));
        let mut batch = Vec::new();
        for _ in 0..20 {
            for k in 1..=CAPACITY as u64 {
                let event = if k < CAPACITY as u64 { nonsense } else { job(k) };
                producer.push(&theirs, event, Instant::new(1));
            }
            while ours.take(&mut batch, 64) > 0 {}
        }
        let counters = ours.counters();
        assert!(
            counters.taken + counters.rejected <= 2 * CAPACITY as u64,
            "one look more than the limit: {counters:?}"
        );
        assert_eq!(counters.flooded, 1);
    }

    #[test]
    fn too_many_wake_up_calls_are_silenced_once_until_the_window_ends() {
        let (mut ours, _theirs) = ring();
        ours.turn(Instant::new(1));
        assert_eq!((0..1_000).filter(|_| ours.woken()).count(), 1);
        assert!(ours.next_look().is_some(), "somebody must come back and listen again");
        assert!(!ours.turn(Instant::new(2)));
        assert!(ours.turn(Instant::new(200_000_000)));
        assert_eq!(ours.next_look(), None);
    }
}
