//! The dispatcher: one thread that waits for everything, and carries one event after the other, the one with the
//! earliest deadline first.
//!
//! ```text
//! sleep ──> connections (≤ 64 messages each) ──> the kernel's ring (≤ 256) ──> misses ──> deliver (≤ 64)
//!   ^                                                                                         │
//!   └───────── faults judged every 100 ms while anybody is subscribed <───────────────────────┘
//! ```
//! Every arrow is bounded, and events that arrive between two deliveries may overtake those that wait: the order
//! is by deadline, not by arrival. It runs at nice −10: before batch work, behind everything that is reserved.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use qfabric_linux::clock;
use qfabric_sync::lock;
use qfabric_types::ecalls_wire::MAX_MESSAGE;
use qfabric_types::memory::Stamp;
use qfabric_types::{Instant, Nanos};
use rustix::event::Timespec;
use rustix::event::epoll;

use super::misses::SERVICE;
use super::raise::Event;
use super::share::RunTimes;
use super::subscription::{Subscription, count};
use super::{Ecalls, Source, drop_aside};

/// Records taken from the kernel's ring per turn, and events delivered before others are looked at.
const RECORDS_PER_TURN: usize = 256;
/// See [`RECORDS_PER_TURN`].
const DELIVERIES_PER_TURN: usize = 64;
/// Sources seen per turn; the rest at the next, at once.
const SOURCES: usize = 64;
/// How often faults are judged, and whether processes still are their users'.
const JUDGE_EVERY: Nanos = Nanos::from_millis(100);
/// See [`JUDGE_EVERY`].
const CHECK_EVERY: Nanos = Nanos::from_millis(1_000);
const LONGEST: Nanos = Nanos::from_millis(60_000);

/// The running thread.
pub(crate) struct Dispatcher {
    ecalls: Arc<Ecalls>,
    thread: Option<JoinHandle<()>>,
}

impl Dispatcher {
    /// Starts it; `listener` is `ecalls.sock`, non-blocking.
    pub fn start(ecalls: Arc<Ecalls>, listener: OwnedFd) -> io::Result<Dispatcher> {
        ecalls.watch(&listener, Source::Listener)?;
        let turning = Turning::new(ecalls.clone(), listener);
        let thread = Some(ecalls.ending.spawn("qf-ecalls", move || turning.run())?);
        Ok(Dispatcher { ecalls, thread })
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.ecalls.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Turning {
    ecalls: Arc<Ecalls>,
    listener: OwnedFd,
    buffer: Vec<u8>,
    judge_at: Instant,
    check_at: Instant,
    run_times: RunTimes,
}

impl Turning {
    fn new(ecalls: Arc<Ecalls>, listener: OwnedFd) -> Turning {
        let buffer = vec![0; MAX_MESSAGE];
        let (judge_at, check_at, run_times) = (Instant::ZERO, Instant::ZERO, RunTimes::default());
        Turning { ecalls, listener, buffer, judge_at, check_at, run_times }
    }

    fn run(mut self) {
        // Refused without CAP_SYS_NICE: then it runs like anybody else.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -10);
        let mut happened = Vec::with_capacity(SOURCES);
        while !self.ecalls.stopping.load(Ordering::Acquire) {
            self.sleep(&mut happened);
            for event in &happened {
                self.hear(Source::of(event.data.u64()));
            }
            self.take_misses();
            self.deliver();
            let now = clock::now();
            self.judge(now);
            self.check_owners(now);
        }
    }

    fn sleep(&self, happened: &mut Vec<epoll::Event>) {
        happened.clear();
        // In a `let` of its own: `patience` takes the registry, which comes before the queue.
        let is_idle = lock(&self.ecalls.queue).is_empty();
        let ns = if is_idle { self.patience().get() } else { 0 };
        let timeout = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        // An error (a signal) is as good as nothing having happened.
        let _ = epoll::wait(&self.ecalls.epoll, rustix::buffer::spare_capacity(happened), Some(&timeout));
    }

    fn patience(&self) -> Nanos {
        let is_unused = self.ecalls.registry().subscriptions.is_empty();
        if is_unused { LONGEST } else { JUDGE_EVERY }
    }

    fn hear(&mut self, source: Source) {
        match source {
            // Written by us alone; read, so that it is not readable any more.
            Source::Wake => drop(rustix::io::read(&*self.ecalls.wake, &mut [0; 8])),
            Source::Listener => self.ecalls.accept(&self.listener),
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
        for _ in 0..DELIVERIES_PER_TURN {
            let totals = &self.ecalls.totals;
            let taken = lock(&self.ecalls.queue).take(clock::now(), |late| {
                late.to.waiting.fetch_sub(1, Ordering::Relaxed);
                count(&late.to.tally.late);
                count(&totals.late);
            });
            let Some(event) = taken else { return };
            event.to.waiting.fetch_sub(1, Ordering::Relaxed);
            count(&totals.delivered);
            event.to.carry(0, &event.data, event.stamp, &self.ecalls.pool);
        }
    }

    fn judge(&mut self, now: Instant) {
        if now < self.judge_at {
            return;
        }
        self.judge_at = now + JUDGE_EVERY;
        let all: Vec<_> = self.ecalls.registry().subscriptions.values().cloned().collect();
        for subscription in &all {
            if let Some(why) = subscription.judge(now, self.ecalls.config.faults_per_second) {
                self.take_out(subscription, &why);
            }
        }
        for (subscription, why) in self.run_times.judge(now, &all, self.ecalls.config.max_cpu_per_user) {
            self.take_out(&subscription, &why);
        }
    }

    fn take_out(&self, subscription: &Subscription, why: &str) {
        drop_aside(subscription.take_out(why));
        count(&self.ecalls.totals.taken_out);
        tracing::info!(subscription = subscription.id, why, "a handler was taken out");
        self.ecalls.tell_taken_out(subscription, why);
    }

    /// A process that took up a set-uid program is its user's no more.
    fn check_owners(&mut self, now: Instant) {
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_EVERY;
        for id in self.ecalls.lost_processes() {
            self.ecalls.process_lost(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecalls::EcallsConfig;
    use crate::ending::Ending;
    use qfabric_linux::testing::Watchdog;

    const TURNS: usize = 50_000;

    #[test]
    fn reports_and_an_idle_dispatcher_never_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let ecalls = Ecalls::new(EcallsConfig::default(), folder.path(), &Ending::new().unwrap()).unwrap();
        let turning = Turning::new(ecalls.clone(), crate::control::wake_descriptor().unwrap());
        // Never read here: every sleep ends at once.
        ecalls.nudge();
        let watchdog = Watchdog::start("the dispatcher's sleep beside reports");
        std::thread::scope(|scope| {
            scope.spawn(|| repeat(&watchdog, || turning.sleep(&mut Vec::with_capacity(SOURCES))));
            repeat(&watchdog, || drop(ecalls.report()));
        });
    }

    fn repeat(watchdog: &Watchdog, step: impl Fn()) {
        for _ in 0..TURNS {
            step();
            watchdog.progress();
        }
    }
}
