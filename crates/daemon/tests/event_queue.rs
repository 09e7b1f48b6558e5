//! A model of the event queue and the dispatcher against threads that raise events, report and stop: the very file of the
//! service, run through the orders of its steps (shuttle).
//!
//! A deadlock, and a dispatcher that sleeps on an event, end the run as what they are: no thread can go on.

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

/// Orders drawn at random, and by the scheduler that finds mistakes of a few forced switches (Burckhardt et al. 2010).
const ORDERS: usize = 3_000;
const SWITCHES: usize = 3;
/// More than the smallest model has.
const ALL_ORDERS: usize = 100_000;
/// Places in the queue, and for one subscription in it: fewer than events, so that both refuse some.
const CAPACITY: usize = 3;
const MOST_OF_ONE: usize = 2;
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

/// An event for the subscription whose waiting events this counts.
struct Event(Arc<AtomicUsize>);

impl ToOne for Event {
    fn waiting(&self) -> &AtomicUsize {
        &self.0
    }
}

/// What became of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    raised: usize,
    carried: usize,
    late: usize,
    dropped: usize,
}

/// The service: the hub, one subscription, and the counts.
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

    /// As the dispatcher's thread does.
    fn dispatch(self) {
        let late = |_| self.note(|outcome| outcome.late += 1);
        let carry = |_| self.note(|outcome| outcome.carried += 1);
        let turn = |_: &sync::Happened| self.hub.deliver(|| NOW, late, carry);
        self.hub.run(turn, |_| self.note(|outcome| outcome.dropped += 1));
    }

    /// As a request does: the registry is held while the event goes into the queue.
    fn raise(&self, deadline: Instant) {
        let enqueue = |_: &mut Registry| Ok::<_, ()>(self.hub.enqueue(deadline, Event(self.waiting.clone())).is_err());
        let is_dropped = self.hub.raise(enqueue).unwrap();
        self.note(|outcome| {
            outcome.raised += 1;
            outcome.dropped += usize::from(is_dropped);
        });
    }

    fn report(&self) {
        let (_, waiting) = self.hub.look(|registry| registry.subscribed);
        assert!(waiting <= CAPACITY);
    }

    /// As a subscription that is installed, and another one that ends.
    fn subscribe(&self) {
        self.hub.registry().subscribed = true;
        self.hub.nudge();
        self.hub.registry().subscribed = false;
    }

    fn stop(&self) {
        self.hub.stop();
        drop(self.hub.clear());
    }

    /// Waits until something has become of each of so many events. For ever where one is lost.
    fn wait_for(&self, raised: usize) {
        let mut outcome = self.outcome.0.lock().unwrap();
        while outcome.carried + outcome.late + outcome.dropped < raised {
            outcome = self.outcome.1.wait(outcome).unwrap();
        }
    }

    /// After the dispatcher has ended.
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

/// Everything at once: two threads raise, one reports, one subscribes.
fn bustle(service: &Service) -> Vec<JoinHandle<()>> {
    let timely = service.spawn(|service| (0..2).for_each(|_| service.raise(TIMELY)));
    let mixed = service.spawn(|service| [LATE, TIMELY].into_iter().for_each(|deadline| service.raise(deadline)));
    let report = service.spawn(|service| (0..2).for_each(|_| service.report()));
    let subscribe = service.spawn(|service| service.subscribe());
    vec![timely, mixed, report, subscribe]
}

fn check(run: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(run.clone(), ORDERS);
    shuttle::check_pct(run, ORDERS, SWITCHES);
}

#[test]
fn every_event_is_carried_late_or_dropped_before_the_dispatcher_is_told_to_stop() {
    check(|| {
        let service = Service::new();
        let dispatcher = service.spawn(Service::dispatch);
        let others = bustle(&service);
        service.wait_for(4);
        join(others);
        service.stop();
        join([dispatcher]);
        service.check(4);
    });
}

#[test]
fn a_stop_at_any_moment_ends_the_dispatcher_and_every_event_is_counted() {
    check(|| {
        let service = Service::new();
        let dispatcher = service.spawn(Service::dispatch);
        let others = bustle(&service);
        service.stop();
        join([dispatcher]);
        join(others);
        service.check(4);
    });
}

/// Two threads, in all orders of their steps that there are.
#[test]
fn a_stop_and_an_idle_dispatcher_meet_in_no_order_that_hangs() {
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
