//! Handler threads (003 §3.2: «kernel threads», 000 §3.2.2: a pool whose size is modified as needed).
//!
//! ```text
//! submit ──> backlog of the subscription (EDF) ──> ready: subscriptions (EDF) ──> thread: one event, then back
//!            full: dropped, counted                 each at most once              idle for 5 s: ends
//! ```
//! All handlers of the daemon run in these threads, at nice 0, and never in the dispatcher. Each user has own threads.
//! The threads of a user other than root take at most a share of one CPU (`ecalls.max_cpu_per_user`): above it they
//! pause, and events wait in the bounded backlogs. The daemon measures and limits this by itself, by the clocks of the
//! threads, because a control group with a limit for single threads exists only where an administrator delegated one.
//!
//! One thread at a time works for a subscription, so its events stay in the order of their deadlines, and its
//! handlers' variables need no lock. There are as many threads as there is work for, up to the limit. Among
//! subscriptions whose next events have equal deadlines, the priority of the receiving process decides, then the
//! arrival.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_sched::EventQueue;
use qfabric_sync::{Lock, lock, rank};
use qfabric_types::memory::Stamp;
use qfabric_types::{Instant, Nanos, Share};

use super::crew::Crew;
use super::subscription::{Subscription, count, thread_time};
use crate::ending::Ending;

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(5);
/// The share of this time may be taken at once.
const BURST: Nanos = Nanos::from_millis(100);
/// Bytes of the events of one user that may wait for threads (root excepted).
const WAITING_BYTES: usize = 16 << 20;
/// A pause is interrupted after this time, to see whether the service ends.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

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
    _room: Room,
}

/// The bytes of a waiting event, counted for its user until this is dropped.
#[derive(Debug)]
struct Room {
    of: Arc<AtomicUsize>,
    bytes: usize,
}

impl Room {
    /// `None`: more than `most` bytes would wait.
    fn take(of: &Arc<AtomicUsize>, bytes: usize, most: usize) -> Option<Room> {
        let room = Room { of: of.clone(), bytes };
        (of.fetch_add(bytes, Ordering::Relaxed) + bytes <= most).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Backlog {
    pub(super) fn new(capacity: usize) -> Backlog {
        Backlog { events: EventQueue::new(capacity), active: false }
    }
}

/// The handler threads of all users.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    users: Lock<BTreeMap<u32, Arc<User>>, { rank::HANDLER_USERS }>,
    /// Largest number of threads of one user.
    most: usize,
    subscriptions: usize,
    /// Share of a CPU that the threads of a user other than root may take, in millionths.
    share: AtomicU32,
    stopping: AtomicBool,
    ending: Ending,
}

/// The threads of one user. A user never waits for the threads of another one.
struct User {
    crew: Crew<Arc<Subscription>>,
    /// `None`: root, without a limit.
    allowance: Option<Lock<Allowance, { rank::ALLOWANCE }>>,
    /// Bytes of the events that wait for the threads.
    waiting: Arc<AtomicUsize>,
}

impl Pool {
    /// At most `most` threads for each user, for at most `subscriptions` subscriptions. The threads of a user other
    /// than root take at most `share` of a CPU.
    pub(super) fn new(most: usize, subscriptions: usize, share: Share, ending: &Ending) -> Pool {
        let (users, stopping) = (Lock::default(), AtomicBool::new(false));
        Pool(Arc::new(Shared {
            users,
            most,
            subscriptions,
            share: share.ppm().into(),
            stopping,
            ending: ending.clone(),
        }))
    }

    fn share(&self) -> Share {
        Share::from_ppm(self.0.share.load(Ordering::Relaxed))
    }

    /// From now on the threads of a user other than root take at most `share` of a CPU.
    pub(super) fn set_share(&self, share: Share) {
        self.0.share.store(share.ppm(), Ordering::Relaxed);
        for user in self.all() {
            user.allowance.iter().for_each(|allowance| allowance.with(|allowance| allowance.share = share));
        }
    }

    pub(super) fn threads(&self) -> usize {
        self.all().iter().map(|user| user.crew.threads()).sum()
    }

    fn all(&self) -> Vec<Arc<User>> {
        lock(&self.0.users).values().cloned().collect()
    }

    fn user(&self, uid: u32) -> Arc<User> {
        let mut users = lock(&self.0.users);
        let new = || {
            let allowance = (uid != 0).then(|| Lock::new(Allowance::new(self.share())));
            Arc::new(User { crew: Crew::new(self.0.most, self.0.subscriptions), allowance, waiting: Arc::default() })
        };
        let user = users.entry(uid).or_insert_with(new).clone();
        // Users without threads and work are removed, so that there are at most as many as subscriptions, plus this one.
        if users.len() > self.0.subscriptions {
            users.retain(|other, user| *other == uid || !user.crew.is_empty());
        }
        user
    }

    /// Queues an event for a thread, which continues the chain at `stage`.
    pub(super) fn submit(&self, to: &Arc<Subscription>, stage: usize, data: &[u8], stamp: Stamp) {
        let deadline = to.deadline(stage, stamp);
        let user = self.user(to.terms.owner.uid);
        let most = if to.terms.owner.uid == 0 { usize::MAX } else { WAITING_BYTES };
        let room = Room::take(&user.waiting, data.len() + size_of::<Job>(), most);
        let mut backlog = lock(&to.backlog);
        let job = room.map(|_room| Job { stage, data: data.into(), stamp, _room });
        if job.is_none_or(|job| backlog.events.push(deadline, job).is_err()) {
            count(&to.tally.dropped_queue);
        }
        let was_active = std::mem::replace(&mut backlog.active, true);
        drop(backlog);
        match was_active {
            false => self.make_ready(&user, to),
            true if user.crew.is_abandoned() => self.start(user),
            true => {}
        }
    }

    fn make_ready(&self, user: &Arc<User>, subscription: &Arc<Subscription>) {
        let deadline = lock(&subscription.backlog).events.next_deadline().unwrap_or(Instant::NEVER);
        // Each subscription is in the queue at most once, so this cannot fail.
        if user.crew.push(deadline, subscription.priority(), subscription.clone()) {
            self.start(user.clone());
        }
    }

    fn start(&self, user: Arc<User>) {
        let (pool, own) = (self.clone(), user.clone());
        let body = move || {
            if pool.0.ending.guard("qf-handler", || pool.work(&own)).is_none() {
                own.crew.leave();
            }
        };
        // If no thread can be started, existing threads do the work, or the thread that the next event starts.
        if std::thread::Builder::new().name("qf-handler".to_owned()).spawn(body).is_err() {
            user.crew.leave();
        }
    }

    fn work(&self, user: &Arc<User>) {
        // The thread inherits the dispatcher's priority; long work must not run before others.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 0);
        loop {
            self.pause(user);
            let Some(subscription) = user.crew.next(IDLE) else { return };
            self.serve(user, &subscription);
        }
    }

    /// Waits as long as the threads of the user have taken more than their share.
    fn pause(&self, user: &User) {
        let Some(allowance) = &user.allowance else { return };
        while !self.0.stopping.load(Ordering::Acquire) {
            let wait = lock(allowance).pause(clock::now());
            if wait == Nanos::ZERO {
                return;
            }
            std::thread::sleep(Duration::from_nanos(wait.get()).min(LONGEST_PAUSE));
        }
    }

    /// Carries one event, then returns the subscription to the queue, so that other subscriptions with the same
    /// deadline and priority have their turn, and those with an earlier one come first.
    fn serve(&self, user: &Arc<User>, subscription: &Arc<Subscription>) {
        let job = lock(&subscription.backlog).events.take(clock::now(), |_| count(&subscription.tally.late));
        if let Some(Job { stage, data, stamp, _room }) = job {
            let began = thread_time();
            subscription.carry(stage, &data, stamp, None);
            let took = Nanos::new(thread_time().saturating_sub(began));
            if let Some(allowance) = &user.allowance {
                lock(allowance).charge(clock::now(), took);
            }
        }
        let mut backlog = lock(&subscription.backlog);
        backlog.active = !backlog.events.is_empty();
        if backlog.active {
            drop(backlog);
            self.make_ready(user, subscription);
        }
    }

    /// Ends the threads, each after its present event.
    pub(super) fn stop(&self) {
        self.0.stopping.store(true, Ordering::Release);
        // A user that comes now has no threads: the dispatcher, which alone submits events, has ended or ends.
        self.all().iter().for_each(|user| user.crew.stop());
    }
}

/// The CPU time that the handler threads of one user may take: a share of one CPU, in bursts up to [`BURST`].
#[derive(Debug)]
struct Allowance {
    share: Share,
    /// The time at which the share has covered all CPU time so far.
    covered: Instant,
}

impl Allowance {
    fn new(share: Share) -> Allowance {
        Allowance { share, covered: Instant::ZERO }
    }

    /// Adds CPU time that was taken until `now`.
    fn charge(&mut self, now: Instant, took: Nanos) {
        let period = u128::from(took.get()) * 1_000_000 / u128::from(self.share.ppm().max(1));
        self.covered = self.covered.max(now) + Nanos::new(u64::try_from(period).unwrap_or(u64::MAX / 2));
    }

    /// The time until the threads may continue.
    fn pause(&self, now: Instant) -> Nanos {
        self.covered.since(now + BURST)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use qfabric_linux::testing::Watchdog;
    use qfabric_types::Owner;
    use qfabric_types::api::ecalls::{State, SubscriptionRequest};

    use crate::auth::Peer;
    use crate::ecalls::handler::testing::{broken, reporting};
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
        subscription.carry(0, &[0; 48], Stamp::default(), Some(&ecalls.pool));
        while subscription.is_active() {
            std::thread::yield_now();
        }
        let State::TakenOut { why } = subscription.info().state else { panic!("it is active") };
        assert!(why.contains("a mistake in the engine"), "{why}");
        ecalls.stop();
        assert_eq!((ecalls.pool.threads(), ending.reason()), (0, None), "the service continues");
    }

    /// Root's handler stays in its call while the user's handler runs, although each user has one thread only.
    #[test]
    fn handlers_run_in_threads_of_their_user_at_nice_0() {
        if !rustix::process::geteuid().is_root() {
            return qfabric_linux::testing::skip("only root can start a process of another user");
        }
        let mut process = Command::new("sleep").arg("600").uid(1_000).gid(1_000).spawn().unwrap();
        let (folder, ending) = (tempfile::tempdir().unwrap(), Ending::new().unwrap());
        let config = EcallsConfig { handler_threads: 1, ..EcallsConfig::default() };
        let ecalls = Ecalls::new(config, folder.path(), &ending).unwrap();
        let pid = process.id() as i32;
        let (to, reports) = std::sync::mpsc::channel();
        let mut holds = Vec::new();
        let _watchdog = Watchdog::start("handlers of two users");
        for uid in [0, 1_000] {
            let peer = Peer { pid, owner: Owner { uid, gid: uid } };
            let (service, k_code) = (misses::SERVICE.to_owned(), Some("return 1;".to_owned()));
            let request = SubscriptionRequest { service, k_code, only_pid: Some(pid), ..Default::default() };
            let id = ecalls.subscribe(peer, request).unwrap().id;
            let subscription = ecalls.registry().subscription(id, peer).unwrap().clone();
            let Stage::Handler(handler) = &subscription.chain.stages[0] else { panic!("the chain has one handler") };
            let (hold, held) = std::sync::mpsc::channel();
            *lock(handler) = reporting(subscription.chain.down.clone(), to.clone(), held);
            holds.push(hold);
            subscription.carry(0, &[0; 48], Stamp::default(), Some(&ecalls.pool));
            assert_eq!(reports.recv().unwrap(), ("qf-handler".to_owned(), 0), "user {uid}");
        }
        assert_eq!(ecalls.pool.threads(), 2);
        drop(holds);
        ecalls.stop();
        process.kill().and_then(|()| process.wait()).unwrap();
    }

    #[test]
    fn a_user_takes_a_share_of_a_cpu_in_bursts_and_waits_for_the_rest() {
        let (mut allowance, ms) = (Allowance::new(Share::from_ppm(100_000)), Nanos::from_millis);
        let at = |millis| Instant::ZERO + ms(millis);
        allowance.charge(at(1_000), ms(10));
        assert_eq!(allowance.pause(at(1_000)), Nanos::ZERO, "a tenth of 100 ms");
        allowance.charge(at(1_000), ms(5));
        assert_eq!((allowance.pause(at(1_000)), allowance.pause(at(1_050))), (ms(50), Nanos::ZERO));
        // 100 ms of work without a pause between the events takes nearly a second.
        let mut now = at(10_000);
        for _ in 0..1_000 {
            allowance.charge(now, Nanos::from_micros(100));
            now = now + allowance.pause(now);
        }
        assert_eq!(now, at(10_900));
    }
}
