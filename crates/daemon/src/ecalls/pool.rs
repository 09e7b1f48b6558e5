//! Handler threads (003 §3.2: «kernel threads», 000 §3.2.2: a pool whose size is modified as needed).
//!
//! ```text
//! submit ──> backlog of the subscription (EDF) ──> ready: subscriptions (EDF) ──> thread: one event, then back
//!            full: dropped, counted                 each at most once              idle for 5 s: ends
//! ```
//! One thread at a time works for a subscription, so its events stay in the order of their deadlines, and its
//! handlers' variables need no lock. There are as many threads as there is work for, up to the limit.

use std::sync::Arc;
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_sched::EventQueue;
use qfabric_sync::lock;
use qfabric_types::Instant;
use qfabric_types::memory::Stamp;

use super::crew::Crew;
use super::subscription::{Subscription, count};
use crate::ending::Ending;

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(5);

/// Events of one subscription that wait for a thread.
#[derive(Debug)]
pub(crate) struct Backlog {
    events: EventQueue<Job>,
    /// Whether the subscription is in the pool's ready queue, or a thread works for it.
    active: bool,
}

/// An event, and the stage of the chain at which it continues.
#[derive(Debug)]
struct Job {
    stage: usize,
    data: Box<[u8]>,
    stamp: Stamp,
}

impl Backlog {
    pub(super) fn new(capacity: usize) -> Backlog {
        Backlog { events: EventQueue::new(capacity), active: false }
    }
}

/// The pool of handler threads.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    crew: Crew<Arc<Subscription>>,
    ending: Ending,
}

impl Pool {
    /// At most `most` threads, for at most `subscriptions` subscriptions.
    pub(super) fn new(most: usize, subscriptions: usize, ending: &Ending) -> Pool {
        Pool(Arc::new(Shared { crew: Crew::new(most, subscriptions), ending: ending.clone() }))
    }

    pub(super) fn threads(&self) -> usize {
        self.0.crew.threads()
    }

    /// Queues an event for a thread, which continues the chain at `stage`.
    pub(super) fn submit(&self, to: &Arc<Subscription>, stage: usize, data: &[u8], stamp: Stamp) {
        let deadline = to.deadline(stamp);
        let mut backlog = lock(&to.backlog);
        if backlog.events.push(deadline, Job { stage, data: data.into(), stamp }).is_err() {
            count(&to.tally.dropped_queue);
        } else if !backlog.active {
            backlog.active = true;
            drop(backlog);
            self.make_ready(to);
        }
    }

    fn make_ready(&self, subscription: &Arc<Subscription>) {
        let deadline = lock(&subscription.backlog).events.next_deadline().unwrap_or(Instant::NEVER);
        // Each subscription is in the queue at most once, so this cannot fail.
        if self.0.crew.push(deadline, subscription.clone()) {
            self.start();
        }
    }

    fn start(&self) {
        let pool = self.clone();
        let body = move || {
            if pool.0.ending.guard("qf-handler", || pool.work()).is_none() {
                pool.0.crew.leave();
            }
        };
        // If no thread can be started, existing threads do the work, or the thread that the next event starts.
        if std::thread::Builder::new().name("qf-handler".to_owned()).spawn(body).is_err() {
            self.0.crew.leave();
        }
    }

    fn work(&self) {
        // The thread inherits the dispatcher's priority; long work must not run before others.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 0);
        while let Some(subscription) = self.0.crew.next(IDLE) {
            self.serve(&subscription);
        }
    }

    /// Carries one event, then returns the subscription to the queue, so that the other subscriptions have their
    /// turn.
    fn serve(&self, subscription: &Arc<Subscription>) {
        let job = lock(&subscription.backlog).events.take(clock::now(), |_| count(&subscription.tally.late));
        if let Some(Job { stage, data, stamp }) = job {
            subscription.carry(stage, &data, stamp, self);
        }
        let mut backlog = lock(&subscription.backlog);
        backlog.active = !backlog.events.is_empty();
        if backlog.active {
            drop(backlog);
            self.make_ready(subscription);
        }
    }

    /// Ends the threads, each after its present event.
    pub(super) fn stop(&self) {
        self.0.crew.stop();
    }
}

#[cfg(test)]
mod tests {
    use qfabric_linux::testing::Watchdog;
    use qfabric_types::Owner;
    use qfabric_types::api::ecalls::{State, SubscriptionRequest};

    use crate::auth::Peer;
    use crate::ecalls::handler::testing::broken;
    use crate::ecalls::subscription::Stage;
    use crate::ecalls::{Ecalls, EcallsConfig, misses};

    use super::*;

    #[test]
    fn only_a_panicking_handler_is_removed_and_the_pool_can_be_stopped() {
        let (folder, ending) = (tempfile::tempdir().unwrap(), Ending::new().unwrap());
        let ecalls = Ecalls::new(EcallsConfig::default(), folder.path(), &ending).unwrap();
        let root = Peer { pid: std::process::id() as i32, owner: Owner { uid: 0, gid: 0 } };
        let (service, k_code) = (misses::SERVICE.to_owned(), Some("return 1;".to_owned()));
        let request = SubscriptionRequest { service, k_thread: true, k_code, ..Default::default() };
        let id = ecalls.subscribe(root, request).unwrap().id;
        let subscription = ecalls.registry().subscription(id, root).unwrap().clone();
        let handlers = subscription.chain.stages.iter().filter_map(|stage| match stage {
            Stage::Handler(handler) => Some(handler),
            _ => None,
        });
        handlers.for_each(|handler| *lock(handler) = broken(subscription.chain.down.clone()));
        let _watchdog = Watchdog::start("a handler that panics");
        subscription.carry(0, &[0; 48], Stamp::default(), &ecalls.pool);
        while subscription.is_active() {
            std::thread::yield_now();
        }
        let State::TakenOut { why } = subscription.info().state else { panic!("it is active") };
        assert!(why.contains("a mistake in the engine"), "{why}");
        ecalls.stop();
        assert_eq!((ecalls.pool.threads(), ending.reason()), (0, None), "the service continues");
    }
}
