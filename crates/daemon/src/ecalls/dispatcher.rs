//! The dispatcher: one thread that waits for all sources of events and delivers one event after the other, the one
//! with the earliest deadline first.
//!
//! ```text
//! sleep ──> connections (≤ 64 messages each) ──> the kernel's ring (≤ 256) ──> misses, channels ──> deliver (≤ 64)
//!   ^                                                                                         │
//!   └───────── faults judged every 100 ms while there is a subscription <─────────────────────┘
//! ```
//! Each step is bounded. Events that arrive between two deliveries may overtake waiting ones: the order is by
//! deadline, among equal ones by the scheduling priority of the receiving process, and not by arrival. An event that
//! was held is delivered at its moment, before them. The thread runs at nice −10: before batch work, after all threads
//! with a reservation.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use qfabric_linux::clock;
use qfabric_types::api::timeline::TimelineEvent;
use qfabric_types::ecalls_wire::MAX_MESSAGE;
use qfabric_types::memory::Stamp;
use qfabric_types::{Instant, Nanos};

use super::hub::JUDGE_EVERY;
use super::misses::SERVICE;
use super::raise::{Event, Queued};
use super::sources::{ReadySources, Source};
use super::subscription::{Subscription, count};
use super::{Ecalls, drop_aside};
use crate::acceptor::Acceptor;
use crate::ending::Running;
use crate::timeline::Frequent;

/// Records taken from the kernel's ring per turn.
const RECORDS_PER_TURN: usize = 256;
/// Interval between checks of the owners and the priorities of processes, and of the interfaces.
const CHECK_EVERY: Nanos = Nanos::from_millis(1_000);

/// Starts the thread; `listener` is the non-blocking socket `ecalls.sock`. The end of the thread removes all our
/// programs from the kernel.
pub(crate) fn start_dispatcher(ecalls: Arc<Ecalls>, listener: OwnedFd) -> io::Result<Running> {
    let acceptor = Acceptor::new(listener, "ecalls.sock")?;
    ecalls.watch(&acceptor, Source::Listener)?;
    let turning = Turning::new(ecalls.clone(), acceptor);
    let ending = ecalls.ending.clone();
    ending.run("qf-ecalls", move || turning.run(), move || ecalls.stop())
}

/// The state of the dispatcher's thread.
struct Turning {
    ecalls: Arc<Ecalls>,
    acceptor: Acceptor,
    buffer: Vec<u8>,
    judge_at: Instant,
    check_at: Instant,
}

impl Turning {
    fn new(ecalls: Arc<Ecalls>, acceptor: Acceptor) -> Turning {
        let buffer = vec![0; MAX_MESSAGE];
        let (judge_at, check_at) = (Instant::ZERO, Instant::ZERO);
        Turning { ecalls, acceptor, buffer, judge_at, check_at }
    }

    fn run(mut self) {
        // Fails without CAP_SYS_NICE; then the thread runs at nice 0.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -10);
        let ecalls = self.ecalls.clone();
        ecalls.hub.run(clock::now, |ready| self.turn(ready), |event| ecalls.count_dropped(&event));
    }

    fn turn(&mut self, ready: &ReadySources) {
        for source in ready.sources() {
            self.handle(source);
        }
        self.take_misses();
        self.ecalls.take_from_channels();
        self.deliver();
        let now = clock::now();
        self.judge(now);
        self.check_aside(now);
    }

    fn handle(&mut self, source: Source) {
        match source {
            // It has ended the sleep; every turn checks everything that a wake-up may be for.
            Source::Wake => {}
            Source::Listener => self.acceptor.accept(|socket| self.ecalls.accept_one(socket)),
            Source::Ring => self.drain_ring(),
            Source::Lease(id) => self.ecalls.serve_lease(id, &mut self.buffer),
            Source::Process(id) => self.ecalls.process_ended(id),
        }
    }

    fn drain_ring(&self) {
        let Ok(side) = self.ecalls.kernel() else { return };
        side.ring.drain(RECORDS_PER_TURN, &mut |record| {
            let stamp = Stamp { time_ns: record.time_ns, deadline_ns: record.deadline_ns };
            self.ecalls.take_from_kernel(record.id, record.data, stamp);
        });
    }

    fn take_misses(&self) {
        if !self.ecalls.misses.wanted() {
            return;
        }
        for (miss, time_ns) in self.ecalls.misses.take() {
            let stamp = Stamp { time_ns, deadline_ns: 0 };
            let event = Event { pid: -1, data: &miss.bytes(), stamp, cpu: false };
            self.ecalls.raise_own(SERVICE, &event);
        }
    }

    fn deliver(&self) {
        let totals = &self.ecalls.totals;
        let late = |event: Queued| {
            count(&event.to.tally.late);
            count(&totals.late);
        };
        let carry = |event: Queued| {
            if event.stage > 0 && event.to.deadline(event.stage, event.stamp) < clock::now() {
                return late(event);
            }
            count(&totals.delivered);
            self.favour_held(&event);
            self.record(&event);
            event.to.carry(event.stage, &event.data, event.stamp, Some(&self.ecalls.pool));
        };
        self.ecalls.hub.deliver(clock::now, late, carry);
    }

    /// The moment of a held event has come: it favours the servers of its sink until it is late.
    fn favour_held(&self, event: &Queued) {
        let deadline = Some(event.to.deadline(event.stage, event.stamp)).filter(|deadline| *deadline != Instant::NEVER);
        let stamp = Stamp { deadline_ns: deadline.map_or(0, Instant::get), ..event.stamp };
        self.ecalls.favour(&event.to, event.stage > 0 && event.to.terms.favour, stamp);
    }

    fn record(&self, event: &Queued) {
        let (Some(timeline), terms) = (self.ecalls.timeline.get(), &event.to.terms) else { return };
        timeline.frequent(Frequent::Ecall, terms.owner.uid, clock::now(), || TimelineEvent::Ecall {
            service: terms.service_name.clone(),
            pid: terms.process_id,
        });
    }

    fn judge(&mut self, now: Instant) {
        if now < self.judge_at {
            return;
        }
        self.judge_at = now + JUDGE_EVERY;
        let all: Vec<_> = self.ecalls.registry().subscriptions.values().cloned().collect();
        for subscription in &all {
            if let Some(why) = subscription.judge(now, self.ecalls.config().faults_per_second) {
                self.take_out(subscription, &why);
            }
        }
        self.judge_users(now, all);
    }

    /// Removes all handlers in the kernel of users who took more than their share of CPU time.
    fn judge_users(&self, now: Instant, mut all: Vec<Arc<Subscription>>) {
        all.retain(|subscription| subscription.terms.owner.uid != 0);
        let reading = |subscription: Arc<Subscription>| {
            let run_ns = subscription.counters().run_ns;
            (subscription, run_ns)
        };
        let readings: Vec<_> = all.into_iter().map(reading).collect();
        let mut registry = self.ecalls.registry();
        registry.charge_hooks(now);
        let suspended = registry.accounts.judge_all(now, &readings);
        let groups: Vec<_> = suspended.iter().map(|suspension| registry.take_hooks_of(suspension.uid)).collect();
        drop(registry);
        for (suspension, (hooks, members)) in suspended.iter().zip(groups) {
            let of_user = readings.iter().map(|(one, _)| one).filter(|one| one.terms.owner.uid == suspension.uid);
            let in_kernel = of_user.filter(|one| one.has_kernel_part()).chain(&members);
            for subscription in in_kernel.filter(|one| one.is_active()) {
                self.take_out(subscription, &suspension.why());
            }
            if !hooks.is_empty() {
                drop_aside(hooks);
            }
        }
    }

    fn take_out(&self, subscription: &Subscription, why: &str) {
        drop_aside(subscription.take_out(why));
        count(&self.ecalls.totals.taken_out);
        tracing::info!(subscription = subscription.id, why, "handler removed");
        self.ecalls.report_removed(subscription, why);
    }

    fn check_aside(&mut self, now: Instant) {
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_EVERY;
        self.ecalls.check_aside();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use qfabric_linux::sched_attr::SchedAttr;
    use qfabric_types::api::ecalls::SubscriptionRequest;
    use qfabric_types::{Owner, ThreadId};

    use super::*;
    use crate::auth::Peer;
    use crate::ecalls::EcallsConfig;
    use crate::ending::Ending;
    use qfabric_linux::testing::Watchdog;

    const TURNS: usize = 50_000;

    /// `tests/event_queue.rs` checks this for all orders of the hub's steps; this test checks the whole report.
    #[test]
    fn reports_and_an_idle_dispatcher_never_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let ecalls = Ecalls::new(EcallsConfig::default(), folder.path(), &Ending::new().unwrap()).unwrap();
        let watchdog = Watchdog::start("the dispatcher's sleep beside reports");
        let sleep = || {
            // Otherwise the dispatcher would sleep for a minute.
            ecalls.nudge();
            ecalls.hub.sleep(clock::now(), &mut ReadySources::new());
        };
        std::thread::scope(|scope| {
            scope.spawn(|| repeat(&watchdog, sleep));
            repeat(&watchdog, || drop(ecalls.report()));
        });
    }

    #[test]
    fn of_events_without_deadlines_that_of_the_process_with_the_first_priority_is_first() {
        let folder = tempfile::tempdir().unwrap();
        let ecalls = Ecalls::new(EcallsConfig::default(), folder.path(), &Ending::new().unwrap()).unwrap();
        let root = Peer { pid: std::process::id() as i32, owner: Owner { uid: 0, gid: 0 } };
        let mut processes = [19, 10].map(|nice| {
            let process = Command::new("sleep").arg("600").spawn().unwrap();
            SchedAttr::fair(nice).give(ThreadId(process.id() as i32)).unwrap();
            process
        });
        let ids = [0, 1].map(|number: usize| {
            let process_id = processes[number].id() as i32;
            let (service, k_code) = (SERVICE.to_owned(), Some("return 1;".to_owned()));
            let request = SubscriptionRequest { service, k_code, process_id, ..Default::default() };
            ecalls.subscribe(root, request).unwrap().id
        });
        let delivered = || {
            let mut order = Vec::new();
            ecalls.raise_own(SERVICE, &Event::now(-1, &[0; 48], 0, false));
            ecalls.hub.deliver(clock::now, |_| (), |event| order.push(event.to.id));
            order
        };
        let before = delivered();
        SchedAttr::fair(19).give(ThreadId(processes[1].id() as i32)).unwrap();
        ecalls.read_priorities();
        let after = delivered();
        processes.iter_mut().for_each(|process| process.kill().and_then(|()| process.wait()).map(drop).unwrap());
        assert_eq!((before, after), (vec![ids[1], ids[0]], vec![ids[0], ids[1]]), "then by arrival");
    }

    fn repeat(watchdog: &Watchdog, step: impl Fn()) {
        for _ in 0..TURNS {
            step();
            watchdog.progress();
        }
    }
}
