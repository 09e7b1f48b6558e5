//! Model check of the event queue and the dispatcher against threads that raise events, report and stop. It runs
//! the source file of the service through many orders of its steps (shuttle).
//!
//! A deadlock, or a dispatcher that sleeps while an event waits, ends the run because no thread can continue.

#[allow(dead_code)] // the model needs a part
#[path = "../src/ecalls/hub.rs"]
mod hub;
#[allow(dead_code)] // as above
#[path = "shuttle/sync.rs"]
mod sync;

use qfabric_types::Instant;
use shuttle::scheduler::DfsScheduler;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, Runner};

use hub::{Hub, Subscribed, ToOne};

/// Number of random orders, and of orders from the scheduler that finds errors of a few forced switches (Burckhardt
/// et al. 2010).
const ORDERS: usize = 3_000;
const SWITCHES: usize = 3;
/// More orders than the smallest model has.
const ALL_ORDERS: usize = 100_000;
/// Places in the queue, and for one subscription: fewer than there are events, so that both limits refuse some.
const CAPACITY: usize = 3;
const MOST_OF_ONE: usize = 2;
/// Events of [`start_others`].
const EVENTS: usize = 5;
const NOW: Instant = Instant::new(10);
const TIMELY: Instant = Instant::new(11);
const LATE: Instant = Instant::new(9);

#[derive(Default)]
struct Registry {
    subscribed: bool,
}

impl Subscribed for Registry {
    fn is_subscribed(&self) -> bool {
        self.subscribed
    }
}

/// An event; the counter holds the waiting events of its subscription.
struct Event(Arc<AtomicUsize>);

impl ToOne for Event {
    fn waiting(&self) -> &AtomicUsize {
        &self.0
    }

    fn user(&self) -> u32 {
        0
    }

    fn priority(&self) -> i32 {
        0
    }
}

/// Counts of events by their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    raised: usize,
    carried: usize,
    late: usize,
    dropped: usize,
}

/// The service in this model: the hub, one subscription, and the counts.
#[derive(Clone)]
struct Service {
    hub: Arc<Hub<Registry, Event>>,
    waiting: Arc<AtomicUsize>,
    outcome: Arc<(Mutex<Outcome>, Condvar)>,
}

impl Service {
    fn new() -> Service {
        let hub = Arc::new(Hub::new(CAPACITY, MOST_OF_ONE, sync::Sources::default()));
        Service { hub, waiting: Arc::default(), outcome: Arc::default() }
    }

    fn spawn(&self, body: impl FnOnce(Service) + Send + 'static) -> JoinHandle<()> {
        let own = self.clone();
        thread::spawn(move || body(own))
    }

    fn note(&self, change: impl FnOnce(&mut Outcome)) {
        change(&mut self.outcome.0.lock().unwrap());
        self.outcome.1.notify_all();
    }

    /// The loop of the dispatcher's thread.
    fn dispatch(self) {
        let late = |_| self.note(|outcome| outcome.late += 1);
        let carry = |_| self.note(|outcome| outcome.carried += 1);
        let turn = |_: &sync::ReadySources| self.hub.deliver(|| NOW, late, carry);
        self.hub.run(|| NOW, turn, |_| self.note(|outcome| outcome.dropped += 1));
    }

    /// As a request of the service: the registry is locked while the event goes into the queue.
    fn raise(&self, deadline: Instant) {
        let enqueue = |_: &mut Registry| Ok::<_, ()>(self.hub.enqueue(deadline, Event(self.waiting.clone())).is_err());
        let is_dropped = self.hub.raise(enqueue).unwrap();
        self.note(|outcome| {
            outcome.raised += 1;
            outcome.dropped += usize::from(is_dropped);
        });
    }

    /// As a handler thread, with an event whose moment has come. Time is not modelled, so no other moment would come.
    fn hold(&self) {
        let is_dropped = self.hub.hold(NOW, NOW, Event(self.waiting.clone())).is_err();
        self.note(|outcome| {
            outcome.raised += 1;
            outcome.dropped += usize::from(is_dropped);
        });
    }

    fn report(&self) {
        let (_, waiting) = self.hub.look(|registry| registry.subscribed);
        assert!(waiting <= CAPACITY);
    }

    /// A subscription is installed, then it ends.
    fn subscribe(&self) {
        self.hub.registry().subscribed = true;
        self.hub.nudge();
        self.hub.registry().subscribed = false;
    }

    fn stop(&self) {
        self.hub.stop();
        drop(self.hub.clear());
    }

    /// Waits until this number of events has been delivered, late or dropped. Blocks forever if an event is lost.
    fn wait_for(&self, raised: usize) {
        let mut outcome = self.outcome.0.lock().unwrap();
        while outcome.carried + outcome.late + outcome.dropped < raised {
            outcome = self.outcome.1.wait(outcome).unwrap();
        }
    }

    /// Checks the counts after the dispatcher has ended.
    fn check(&self, raised: usize) {
        let outcome = *self.outcome.0.lock().unwrap();
        assert_eq!(outcome.raised, raised);
        assert_eq!(outcome.carried + outcome.late + outcome.dropped, raised, "{outcome:?}");
        assert_eq!((self.hub.look(|_| ()).1, self.waiting.load(Ordering::SeqCst)), (0, 0), "{outcome:?}");
    }
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Starts all actions in parallel: two threads raise, one holds, one reports, one subscribes.
fn start_others(service: &Service) -> Vec<JoinHandle<()>> {
    let timely = service.spawn(|service| (0..2).for_each(|_| service.raise(TIMELY)));
    let mixed = service.spawn(|service| [LATE, TIMELY].into_iter().for_each(|deadline| service.raise(deadline)));
    let hold = service.spawn(|service| service.hold());
    let report = service.spawn(|service| (0..2).for_each(|_| service.report()));
    let subscribe = service.spawn(|service| service.subscribe());
    vec![timely, mixed, hold, report, subscribe]
}

fn check(run: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(run.clone(), ORDERS);
    shuttle::check_pct(run, ORDERS, SWITCHES);
}

#[test]
fn every_event_is_delivered_late_or_dropped_before_the_dispatcher_stops() {
    check(|| {
        let service = Service::new();
        let dispatcher = service.spawn(Service::dispatch);
        let others = start_others(&service);
        service.wait_for(EVENTS);
        join(others);
        service.stop();
        join([dispatcher]);
        service.check(EVENTS);
    });
}

#[test]
fn a_stop_at_any_time_ends_the_dispatcher_and_every_event_is_counted() {
    check(|| {
        let service = Service::new();
        let dispatcher = service.spawn(Service::dispatch);
        let others = start_others(&service);
        service.stop();
        join([dispatcher]);
        join(others);
        service.check(EVENTS);
    });
}

/// Two threads, in all possible orders of their steps.
#[test]
fn a_stop_of_an_idle_dispatcher_hangs_in_no_order() {
    let run = || {
        let service = Service::new();
        let dispatcher = service.spawn(Service::dispatch);
        service.stop();
        join([dispatcher]);
    };
    let all = DfsScheduler::new(Some(ALL_ORDERS), false);
    let orders = Runner::new(all, Config::default()).run(run);
    assert!(orders < ALL_ORDERS, "there are more orders than were tried");
}
