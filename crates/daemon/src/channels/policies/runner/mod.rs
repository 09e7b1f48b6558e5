//! Calls controllers in one thread, one at a time and without any lock; each policy has at most its share of CPU time.
//!
//! ```text
//!   manager ── NODE ──> Proxy ──> Inbox ──> controller ──> decisions ── NODE ──> manager
//!              the thread of the event  │   the thread of the policies
//! ```
//! The manager has a [`Proxy`] for each policy, which only records the changes that the policy is called for.
//! [`Runner::next`] chooses the policy after the one that was called last, so that no policy waits for more than one
//! call of each other policy. The lock of the seats is held for these short steps only. A running controller is not in
//! its seat, and its policy can be removed meanwhile.

mod budget;
mod inbox;
#[cfg(test)]
mod tests;
mod thread;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qfabric_host::manager::{Change, ChangeKind, Controller, Decisions, Interest, Readings, View};
use qfabric_sync::{Condvar, Guard, Lock, rank};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use budget::Budget;
use inbox::Inbox;
pub(crate) use thread::start_policies;

/// Largest number of last readings that one policy can read; of one host, at most 256 ([`Readings::new`]). So 32 hosts that
/// report as much as they can fill it, and 200 hosts have room for 40 readings each. A further reading reaches the policy
/// as a change, and is not kept.
const MOST_KNOWN: usize = 8_192;

/// Controllers of all policies, and the changes that wait for them.
#[derive(Default)]
pub(super) struct Runner {
    seats: Lock<Seats, { rank::POLICY_SEATS }>,
    changed: Condvar,
}

#[derive(Default)]
struct Seats {
    of: BTreeMap<u64, Seat>,
    added: u64,
    /// The seat that was called last.
    last: u64,
    /// A change was recorded since the last look.
    is_noted: bool,
    is_asleep: bool,
    is_stopping: bool,
    totals: Usage,
}

struct Seat {
    /// Number in the manager; none: the policy is being added, and not called yet.
    number: Option<u64>,
    inbox: Inbox,
    budget: Budget,
    /// None: the controller is running.
    called: Option<Box<Called>>,
    wakeup: Option<Instant>,
    dropped: u64,
}

/// A controller with its last readings.
struct Called {
    controller: Box<dyn Controller>,
    readings: Readings,
}

/// Usage of a policy, or of all policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time of all calls.
    pub cpu: Nanos,
    /// Changes that were dropped because the policy was too slow.
    pub dropped: u64,
    /// Windows in which the policy used more than its share.
    pub suspensions: u64,
    /// Whether the policy waits for the end of such a window.
    pub is_suspended: bool,
}

/// A call that is due.
pub(super) struct Call {
    pub seat: u64,
    /// Number in the manager.
    pub number: u64,
    called: Box<Called>,
    /// None: the time of the policy's wake-up has come.
    change: Option<Change>,
}

/// Next step of the thread.
pub(super) enum Next {
    Call(Call),
    /// Until that time; none: until a change is recorded.
    Sleep(Option<Instant>),
    Stop,
}

impl Runner {
    fn lock(&self) -> Guard<'_, Seats, { rank::POLICY_SEATS }> {
        self.seats.lock()
    }

    /// Adds a seat for a policy that may use `most` of CPU time per second (none: no limit); returns the seat and the
    /// policy's proxy for the manager. Calls begin after [`Runner::open`].
    pub(super) fn add(self: &Arc<Runner>, controller: Box<dyn Controller>, most: Option<Nanos>) -> (u64, Proxy) {
        let (name, interests) = (controller.name().to_owned(), controller.interests());
        let wakeup = controller.next_wakeup();
        let called = Some(Box::new(Called { controller, readings: Readings::new(MOST_KNOWN) }));
        let (inbox, budget) = (Inbox::default(), Budget::new(most));
        let mut seats = self.lock();
        seats.added += 1;
        let seat = seats.added;
        seats.of.insert(seat, Seat { number: None, inbox, budget, called, wakeup, dropped: 0 });
        (seat, Proxy { name, interests, seat, runner: self.clone() })
    }

    /// Sets the CPU time that a policy may use per second.
    pub(super) fn limit(&self, seat: u64, most: Option<Nanos>) {
        let mut seats = self.lock();
        if let Some(seat) = seats.of.get_mut(&seat) {
            seat.budget.most = most;
        }
    }

    /// Records the policy's number in the manager.
    pub(super) fn open(&self, seat: u64, number: u64) {
        let mut seats = self.lock();
        if let Some(seat) = seats.of.get_mut(&seat) {
            seat.number = Some(number);
        }
        self.wake(seats);
    }

    /// Removes a policy, whether its controller is running or not.
    pub(super) fn remove(&self, seat: u64) {
        let removed = self.lock().of.remove(&seat);
        // The controller is dropped without the lock.
        drop(removed);
    }

    /// Usage of a policy; zero if the policy does not exist any more.
    pub(super) fn usage(&self, seat: u64, now: Instant) -> Usage {
        self.lock().of.get(&seat).map_or_else(Usage::default, |seat| seat.usage(now))
    }

    /// Usage of all policies, including those that were removed.
    pub(super) fn totals(&self) -> Usage {
        self.lock().totals
    }

    /// Records a change for a policy.
    fn note(&self, seat: u64, change: &Change) {
        let mut seats = self.lock();
        let Some(found) = seats.of.get_mut(&seat) else { return };
        let is_first = found.inbox.is_empty();
        let dropped = u64::from(found.inbox.push(change.clone()));
        found.dropped += dropped;
        seats.totals.dropped += dropped;
        // If other changes wait, the thread has its next time already: a suspended policy wakes it only once.
        if is_first {
            self.wake(seats);
        }
    }

    fn wake(&self, mut seats: Guard<'_, Seats, { rank::POLICY_SEATS }>) {
        seats.is_noted = true;
        let is_asleep = std::mem::take(&mut seats.is_asleep);
        drop(seats);
        if is_asleep {
            self.changed.notify_one();
        }
    }

    /// The next call that is due.
    pub(super) fn next(&self, now: Instant) -> Next {
        let mut seats = self.lock();
        seats.is_noted = false;
        if seats.is_stopping {
            return Next::Stop;
        }
        let last = seats.last;
        let ready = |(_, seat): &(&u64, &Seat)| seat.due(now).is_some_and(|due| due <= now);
        let behind = seats.of.range(last + 1..).find(ready);
        let Some(found) = behind.or_else(|| seats.of.range(..=last).find(ready)).map(|(seat, _)| *seat) else {
            return Next::Sleep(seats.of.values().filter_map(|seat| seat.due(now)).min());
        };
        seats.last = found;
        let call = seats.of.get_mut(&found).and_then(|seat| seat.take(found));
        call.map_or(Next::Sleep(None), Next::Call)
    }

    /// Returns a controller to its seat and charges its call. `true`: the policy is suspended for the first time.
    fn put_back(&self, seat: u64, called: Box<Called>, cost: Nanos, now: Instant) -> bool {
        let wakeup = called.controller.next_wakeup();
        let mut seats = self.lock();
        let Seats { of, totals, .. } = &mut *seats;
        totals.cpu += cost;
        let Some(found) = of.get_mut(&seat) else {
            drop(seats);
            // The policy was removed during the call.
            drop(called);
            return false;
        };
        (found.called, found.wakeup) = (Some(called), wakeup);
        let is_over = found.budget.charge(cost, now);
        totals.suspensions += u64::from(is_over);
        is_over && found.budget.suspensions == 1
    }

    /// Waits until that time, or until a change is recorded after the last look.
    fn sleep(&self, until: Option<Instant>, now: Instant) {
        let mut seats = self.lock();
        if seats.is_noted {
            return;
        }
        seats.is_asleep = true;
        let mut seats = match until {
            Some(until) => seats.wait_timeout(&self.changed, Duration::from_nanos(until.since(now).get())).0,
            None => seats.wait(&self.changed),
        };
        seats.is_asleep = false;
    }

    #[cfg(test)]
    pub(super) fn replace(&self, seat: u64, controller: Box<dyn Controller>) {
        let mut seats = self.lock();
        let called = seats.of.get_mut(&seat).and_then(|seat| seat.called.as_mut()).unwrap();
        called.controller = controller;
    }

    fn stop(&self) {
        let mut seats = self.lock();
        seats.is_stopping = true;
        self.wake(seats);
    }
}

impl Seat {
    fn usage(&self, now: Instant) -> Usage {
        let Budget { total, suspensions, .. } = self.budget;
        let is_suspended = self.budget.suspended_until(now).is_some();
        Usage { cpu: total, dropped: self.dropped, suspensions, is_suspended }
    }

    /// Time of the next call; none: not before a change is recorded.
    fn due(&self, now: Instant) -> Option<Instant> {
        self.number.as_ref().and(self.called.as_ref())?;
        let wanted = if self.inbox.is_empty() { self.wakeup } else { Some(Instant::ZERO) };
        Some(wanted?.max(self.budget.suspended_until(now).unwrap_or(Instant::ZERO)))
    }

    fn take(&mut self, seat: u64) -> Option<Call> {
        let (number, called) = (self.number?, self.called.take()?);
        Some(Call { seat, number, called, change: self.inbox.pop() })
    }
}

impl Call {
    /// Calls the controller.
    fn run(&mut self, host: &Name, now: Instant, decisions: &mut Decisions) {
        let Called { controller, readings } = &mut *self.called;
        match &self.change {
            Some(Change { host, what: ChangeKind::Reading(reading), .. }) => _ = readings.keep(host, *reading),
            Some(Change { host, what: ChangeKind::HostGone, .. }) => readings.forget(host),
            _ => {}
        }
        let view = View { host, now, readings };
        match &self.change {
            Some(change) => controller.changed(change, &view, decisions),
            None => controller.woken(&view, decisions),
        }
    }
}

/// Stands for a policy in the manager: records the changes that the policy is called for.
pub(super) struct Proxy {
    name: String,
    interests: Vec<Interest>,
    seat: u64,
    runner: Arc<Runner>,
}

impl Controller for Proxy {
    fn name(&self) -> &str {
        &self.name
    }

    fn interests(&self) -> Vec<Interest> {
        self.interests.clone()
    }

    fn changed(&mut self, change: &Change, _view: &View<'_>, _decisions: &mut Decisions) {
        self.runner.note(self.seat, change);
    }
}
