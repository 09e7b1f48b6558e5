//! State that the dispatcher shares with all other threads: the registry, the queue of events, sleep and wake-up.
//!
//! ```text
//! raise      registry { queue: push }; nudge            report   registry; queue
//! dispatcher queue: empty?; registry: how long; wait;   stop     flag; nudge
//!            clear the nudge; queue: take ...
//! ```
//! Three rules guarantee progress:
//! * A thread takes the registry's lock before the queue's. Only `raise` holds both.
//! * A thread nudges the dispatcher after the change, and the dispatcher clears the nudge before it checks. So a change
//!   after the check ends the next wait.
//! * The dispatcher closes the queue when it ends: undelivered and later events are dropped and counted.
//!
//! `tests/event_queue.rs` runs this file through the orders in which threads can meet.

use qfabric_sched::{FairQueue, Full, HeldQueue};
use qfabric_types::{Instant, Nanos};

use super::sync::{
    AtomicBool, AtomicUsize, DELIVERIES_PER_TURN, Guard, Lock, Ordering, ReadySources, Sources, lock, rank,
};

/// Interval at which faults are judged, while there is a subscription.
pub(crate) const JUDGE_EVERY: Nanos = Nanos::from_millis(100);
const LONGEST: Nanos = Nanos::from_millis(60_000);
/// Longest time for which an event is held.
const LONGEST_HOLD: Nanos = Nanos::from_millis(10_000);

/// The registry `R`, events `E` on their way to subscriptions, and the thread that delivers them.
pub(crate) struct Hub<R, E> {
    registry: Lock<R, { rank::ECALLS_REGISTRY }>,
    queue: Lock<Waiting<E>, { rank::EVENT_QUEUE }>,
    /// Largest number of waiting events of one subscription.
    most_of_one: usize,
    pub sources: Sources,
    stopping: AtomicBool,
}

/// Events that wait: for the dispatcher, or held until their moments.
struct Waiting<E> {
    due: FairQueue<E>,
    held: HeldQueue<E>,
}

impl<E> Waiting<E> {
    fn new(capacity: usize) -> Waiting<E> {
        Waiting { due: FairQueue::new(capacity), held: HeldQueue::new(capacity) }
    }

    fn len(&self) -> usize {
        self.due.len() + self.held.len()
    }

    /// The time from `now` until an event can be delivered; `None`: no event waits.
    fn time_until_next(&self, now: Instant) -> Option<Nanos> {
        if self.due.is_empty() { self.held.next_moment().map(|moment| moment.since(now)) } else { Some(Nanos::ZERO) }
    }

    /// The next event at `now`: a held one whose moment has come, otherwise the next of the queue.
    fn take(&mut self, now: Instant, late: impl FnMut(E)) -> Option<E> {
        self.held.release(now).or_else(|| self.due.take(now, late))
    }
}

/// The dispatcher's question to the registry before it sleeps.
pub(crate) trait Subscribed {
    /// Whether there is a subscription whose faults must be judged.
    fn is_subscribed(&self) -> bool;
}

/// An event on its way to one subscription.
pub(crate) trait ToOne {
    /// The number of waiting events of that subscription.
    fn waiting(&self) -> &AtomicUsize;
    /// The owner of that subscription.
    fn user(&self) -> u32;
    /// The scheduling priority of its receiver, smaller first.
    fn priority(&self) -> i32;
}

impl<R: Subscribed + Default, E: ToOne> Hub<R, E> {
    /// An empty hub. At most `capacity` events wait and as many are held, at most `most_of_one` of one subscription.
    pub(super) fn new(capacity: usize, most_of_one: usize, sources: Sources) -> Hub<R, E> {
        let (registry, queue) = (Lock::new(R::default()), Lock::new(Waiting::new(capacity)));
        Hub { registry, queue, most_of_one, sources, stopping: AtomicBool::new(false) }
    }

    /// Locks the registry.
    pub(super) fn registry(&self) -> Guard<'_, R, { rank::ECALLS_REGISTRY }> {
        lock(&self.registry)
    }

    /// Wakes the dispatcher after a change that its sources do not report.
    pub(super) fn nudge(&self) {
        self.sources.nudge();
    }

    /// Calls `act`, which raises an event with [`Hub::enqueue`], then wakes the dispatcher. For all threads but the
    /// dispatcher.
    pub(super) fn raise<T, X>(&self, act: impl FnOnce(&mut R) -> Result<T, X>) -> Result<T, X> {
        let raised = self.registry.with(act)?;
        self.nudge();
        Ok(raised)
    }

    /// Queues the event if the subscription and the queue have room; otherwise returns the event, to be counted.
    pub(super) fn enqueue(&self, deadline: Instant, event: E) -> Result<(), E> {
        if event.waiting().fetch_add(1, Ordering::Relaxed) >= self.most_of_one {
            return Err(no_longer_waiting(event));
        }
        let pushed = lock(&self.queue).due.push(event.user(), deadline, event.priority(), event);
        pushed.map_err(|Full(event)| no_longer_waiting(event))
    }

    /// Holds the event until `moment`, then the dispatcher delivers it; returns an event that finds no room or whose
    /// moment is too far away.
    pub(super) fn hold(&self, now: Instant, moment: Instant, event: E) -> Result<(), E> {
        let waiting = event.waiting().fetch_add(1, Ordering::Relaxed);
        if waiting >= self.most_of_one || moment.since(now) > LONGEST_HOLD {
            return Err(no_longer_waiting(event));
        }
        let held = lock(&self.queue).held.hold(event.user(), moment, event);
        self.nudge();
        held.map_err(|Full(event)| no_longer_waiting(event))
    }

    /// Reads from the registry with `see`, then the number of waiting events: one lock after the other.
    pub(super) fn look<T>(&self, see: impl FnOnce(&R) -> T) -> (T, usize) {
        let seen = self.registry.with(|registry| see(registry));
        let waiting = lock(&self.queue).len();
        (seen, waiting)
    }

    /// Runs the dispatcher's loop of sleeps and turns until [`Hub::stop`]. Undelivered events go to `dropped`.
    pub(super) fn run(
        &self,
        now: impl Fn() -> Instant,
        mut turn: impl FnMut(&ReadySources),
        mut dropped: impl FnMut(E),
    ) {
        let mut ready = ReadySources::new();
        while !self.stopping.load(Ordering::Acquire) {
            self.sleep(now(), &mut ready);
            turn(&ready);
        }
        let mut rest = self.close();
        while let Some(event) = rest.held.release(Instant::NEVER).or_else(|| rest.due.take(Instant::ZERO, |_| ())) {
            dropped(no_longer_waiting(event));
        }
    }

    /// Waits for a source, at most until the next moment of a held event; does not wait if an event is queued.
    pub(super) fn sleep(&self, now: Instant, ready: &mut ReadySources) {
        // Not below the queue's lock: `timeout` locks the registry, whose lock must come before the queue's.
        let timeout = self.timeout();
        let longest = lock(&self.queue).time_until_next(now).map_or(timeout, |wait| wait.min(timeout));
        if self.sources.wait(ready, longest) {
            self.sources.clear_nudge();
        }
    }

    fn timeout(&self) -> Nanos {
        if self.registry().is_subscribed() { JUDGE_EVERY } else { LONGEST }
    }

    /// One part of a turn: passes events to `carry`, the users in turn and the earliest deadline of each first, among
    /// equal ones that of the receiver with the smallest priority; and late ones to `late`.
    /// Afterwards the other sources are checked; if the queue is not empty, the next sleep ends at once.
    pub(super) fn deliver(&self, now: impl Fn() -> Instant, mut late: impl FnMut(E), mut carry: impl FnMut(E)) {
        for _ in 0..DELIVERIES_PER_TURN {
            let taken = lock(&self.queue).take(now(), |event| late(no_longer_waiting(event)));
            let Some(event) = taken else { return };
            carry(no_longer_waiting(event));
        }
    }

    /// Replaces the queue with one that has no room.
    fn close(&self) -> Waiting<E> {
        self.queue.with(|queue| std::mem::replace(queue, Waiting::new(0)))
    }

    /// The dispatcher ends after its present turn.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.nudge();
    }

    /// Empties the registry; returns the contents for the caller to drop without the lock.
    #[must_use]
    pub(super) fn clear(&self) -> R {
        self.registry.with(std::mem::take)
    }
}

/// Counts an event as no longer waiting.
fn no_longer_waiting<E: ToOne>(event: E) -> E {
    event.waiting().fetch_sub(1, Ordering::Relaxed);
    event
}
