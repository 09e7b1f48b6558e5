//! What the dispatcher shares with all other threads: the registry, the queue of events, and how it sleeps and is woken.
//!
//! ```text
//! raise      registry { queue: push }; nudge            report   registry; queue
//! dispatcher queue: empty?; registry: how long; wait;   stop     flag; nudge
//!            clear the nudge; queue: take ...
//! ```
//! Three rules keep it going:
//! * The registry comes before the queue. Only `raise` holds both.
//! * A nudge comes after what it is for, and the dispatcher clears it before it looks. So whatever happens after the look
//!   ends the next wait.
//! * The queue is closed when the dispatcher leaves: what it did not get to, and what comes later, is dropped and counted.
//!
//! `tests/event_queue.rs` runs this file through the orders in which threads can meet.

use qfabric_sched::{EventQueue, Full};
use qfabric_types::{Instant, Nanos};

use super::sync::{AtomicBool, AtomicUsize, DELIVERIES_PER_TURN, Guard, Happened, Lock, Ordering, Sources, lock, rank};

/// How often faults are judged, while anybody is subscribed.
pub(crate) const JUDGE_EVERY: Nanos = Nanos::from_millis(100);
const LONGEST: Nanos = Nanos::from_millis(60_000);

/// The registry `R`, events `E` on their way to subscriptions, and the thread that carries them.
pub(crate) struct Hub<R, E> {
    registry: Lock<R, { rank::ECALLS_REGISTRY }>,
    queue: Lock<EventQueue<E>, { rank::EVENT_QUEUE }>,
    /// Events of one subscription that may wait.
    most_of_one: usize,
    pub sources: Sources,
    stopping: AtomicBool,
}

/// What the dispatcher asks the registry before it sleeps.
pub(crate) trait Subscribed {
    /// Whether there is a subscription to be judged.
    fn is_subscribed(&self) -> bool;
}

/// An event on its way to one subscription.
pub(crate) trait ToOne {
    /// How many of that subscription's events wait.
    fn waiting(&self) -> &AtomicUsize;
}

impl<R: Subscribed + Default, E: ToOne> Hub<R, E> {
    /// Without registrations. At most `capacity` events wait, of one subscription at most `most_of_one`.
    pub fn new(capacity: usize, most_of_one: usize, sources: Sources) -> Hub<R, E> {
        let (registry, queue) = (Lock::new(R::default()), Lock::new(EventQueue::new(capacity)));
        Hub { registry, queue, most_of_one, sources, stopping: AtomicBool::new(false) }
    }

    /// The registry, for look-ups.
    pub fn registry(&self) -> Guard<'_, R, { rank::ECALLS_REGISTRY }> {
        lock(&self.registry)
    }

    /// Wakes the dispatcher: something has happened that it sleeps without.
    pub fn nudge(&self) {
        self.sources.nudge();
    }

    /// Has `act` raise an event, by [`Hub::enqueue`], and wakes the dispatcher if it did. For all threads but the dispatcher.
    pub fn raise<T, X>(&self, act: impl FnOnce(&mut R) -> Result<T, X>) -> Result<T, X> {
        let raised = self.registry.with(act)?;
        self.nudge();
        Ok(raised)
    }

    /// Into the queue, if the subscription and the queue have room; else the event comes back, to be counted.
    pub fn enqueue(&self, deadline: Instant, event: E) -> Result<(), E> {
        if event.waiting().fetch_add(1, Ordering::Relaxed) >= self.most_of_one {
            return Err(left(event));
        }
        let pushed = lock(&self.queue).push(deadline, event);
        pushed.map_err(|Full(event)| left(event))
    }

    /// What `see` finds in the registry, and then how many events wait: one lock after the other.
    pub fn look<T>(&self, see: impl FnOnce(&R) -> T) -> (T, usize) {
        let seen = self.registry.with(|registry| see(registry));
        let waiting = lock(&self.queue).len();
        (seen, waiting)
    }

    /// The dispatcher's life: sleeps, and makes a turn, until [`Hub::stop`]. Events that are left are handed to `dropped`.
    pub fn run(&self, mut turn: impl FnMut(&Happened), mut dropped: impl FnMut(E)) {
        let mut happened = Happened::new();
        while !self.stopping.load(Ordering::Acquire) {
            self.sleep(&mut happened);
            turn(&happened);
        }
        let mut rest = self.close();
        while let Some(event) = rest.take(Instant::ZERO, |_| ()) {
            dropped(left(event));
        }
    }

    /// Waits for something to happen, where no event waits.
    pub fn sleep(&self, happened: &mut Happened) {
        // In a `let` of its own: `patience` takes the registry, which comes before the queue.
        let is_idle = lock(&self.queue).is_empty();
        let longest = if is_idle { self.patience() } else { Nanos::ZERO };
        if self.sources.wait(happened, longest) {
            self.sources.clear_nudge();
        }
    }

    fn patience(&self) -> Nanos {
        if self.registry().is_subscribed() { JUDGE_EVERY } else { LONGEST }
    }

    /// A part of a turn: hands events to `carry`, the earliest deadline first, and those that are late to `late`. Then others
    /// are looked at; a queue that is not empty lets the next sleep end at once.
    pub fn deliver(&self, now: impl Fn() -> Instant, mut late: impl FnMut(E), mut carry: impl FnMut(E)) {
        for _ in 0..DELIVERIES_PER_TURN {
            let taken = lock(&self.queue).take(now(), |event| late(left(event)));
            let Some(event) = taken else { return };
            carry(left(event));
        }
    }

    /// A queue without room takes this one's place.
    fn close(&self) -> EventQueue<E> {
        self.queue.with(|queue| std::mem::replace(queue, EventQueue::new(0)))
    }

    /// The dispatcher leaves after the turn that it is at.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.nudge();
    }

    /// Takes everything off the books; for the caller to drop, without the lock.
    #[must_use]
    pub fn clear(&self) -> R {
        self.registry.with(std::mem::take)
    }
}

/// An event does not wait any more.
fn left<E: ToOne>(event: E) -> E {
    event.waiting().fetch_sub(1, Ordering::Relaxed);
    event
}
