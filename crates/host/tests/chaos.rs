//! Random lives of a host: applications join and leave, threads start and end, contracts change, the mechanism is
//! busy, slow, or refuses. In every case the capacity is never exceeded and every thread is restored.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::*;
use proptest::prelude::*;
use qfabric_host::{Host, HostConfig, HostEvent, Input, Limits, Outcome, Output};
use qfabric_types::api::ApplicationScope;
use qfabric_types::ring::JobEvent;
use qfabric_types::{
    AppId, Class, Contract, Foresight, Instant, JobRecord, JobSource, MechanismFeatures, Nanos, Reclaiming, Sample,
    Setting, Share, ThreadId,
};

const CAPACITY: u32 = 180;

#[derive(Clone, Debug)]
enum Step {
    Join {
        source: u8,
        class_a: bool,
        program: bool,
        threads: u8,
        most: u32,
        weight: u32,
        reclaim: bool,
    },
    Change {
        app: u64,
        most: u32,
        source: u8,
        period: u8,
    },
    Leave {
        app: u64,
    },
    /// A covered thread requests its own contract.
    Own {
        pick: usize,
        source: u8,
        class_a: bool,
        most: u32,
    },
    /// A thread is handed to the contract of a program.
    Back {
        pick: usize,
        to: u64,
    },
    Born {
        app: u64,
    },
    Gone {
        pick: usize,
    },
    Job {
        app: u64,
        cost_ms: u64,
        late_ms: u64,
    },
    Invalid {
        app: u64,
        release: u64,
        finish: u64,
    },
    Ran {
        pick: usize,
        used_us: u64,
        slept: bool,
    },
    Wait {
        us: u64,
    },
    /// The mechanism answers this number of settings.
    Answer {
        settings: u8,
        outcome: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let app = 1u64..8;
    prop_oneof![
        3 => (0u8..3, any::<bool>(), any::<bool>(), 0u8..10, 1u32..100, 1u32..9, any::<bool>()).prop_map(
            |(source, class_a, program, threads, most, weight, reclaim)| Step::Join {
                source, class_a, program, threads, most, weight, reclaim
            }
        ),
        1 => (app.clone(), 1u32..100, 0u8..3, 0u8..3).prop_map(
            |(app, most, source, period)| Step::Change { app, most, source, period }
        ),
        1 => app.clone().prop_map(|app| Step::Leave { app }),
        2 => (0usize..50, 0u8..3, any::<bool>(), 1u32..100).prop_map(
            |(pick, source, class_a, most)| Step::Own { pick, source, class_a, most }
        ),
        1 => (0usize..50, app.clone()).prop_map(|(pick, to)| Step::Back { pick, to }),
        2 => app.clone().prop_map(|app| Step::Born { app }),
        1 => (0usize..50).prop_map(|pick| Step::Gone { pick }),
        8 => (app.clone(), 0u64..50, 0u64..60).prop_map(|(app, cost_ms, late_ms)| Step::Job { app, cost_ms, late_ms }),
        1 => (app, any::<u64>(), any::<u64>()).prop_map(|(app, r, f)| Step::Invalid { app, release: r, finish: f }),
        8 => (0usize..50, 0u64..30_000, any::<bool>()).prop_map(
            |(pick, used_us, slept)| Step::Ran { pick, used_us, slept }
        ),
        8 => (0u64..60_000).prop_map(|us| Step::Wait { us }),
        8 => (1u8..20, prop_oneof![8 => Just(0u8), 1 => Just(1), 1 => Just(2), 1 => Just(3), 1 => Just(4)]).prop_map(
            |(settings, outcome)| Step::Answer { settings, outcome }
        ),
    ]
}

/// The world outside the host: a model of the kernel that checks the host independently.
struct Outside {
    host: Host,
    now: Instant,
    /// For each thread: the bandwidth in force, and the time until which an old bandwidth may still be consumed.
    kernel: BTreeMap<ThreadId, (u64, Instant, u64)>,
    /// Settings that were sent, and whether each is only for a sleeping thread.
    told: Vec<(Setting, bool)>,
    apps: BTreeMap<AppId, BTreeSet<ThreadId>>,
    left: BTreeSet<AppId>,
    /// Threads that the kernel refuses to restore.
    stuck: BTreeSet<ThreadId>,
    dead: BTreeSet<ThreadId>,
    next_thread: i32,
    joining: Vec<BTreeSet<ThreadId>>,
}

impl Outside {
    fn new() -> Self {
        let limits = Limits::of_capacity(share(CAPACITY));
        let features = MechanismFeatures { gives_back: true, ..MechanismFeatures::default() };
        Outside {
            host: Host::new(HostConfig { limits, features, max_threads: 8, ..HostConfig::default() }),
            now: at(1_000),
            kernel: BTreeMap::new(),
            told: Vec::new(),
            apps: BTreeMap::new(),
            left: BTreeSet::new(),
            stuck: BTreeSet::new(),
            dead: BTreeSet::new(),
            next_thread: 1,
            joining: Vec::new(),
        }
    }

    fn input(&mut self, input: Input) {
        self.host.handle(input, self.now);
        let mut outputs = 0;
        while let Some(output) = self.host.poll() {
            outputs += 1;
            assert!(outputs < 1_000, "the host has outputs without end");
            match output {
                Output::Set(setting) => self.told.push((setting, false)),
                Output::GiveBack(setting) => self.told.push((setting, true)),
                Output::Admitted { request, app } => {
                    self.apps.insert(app, self.joining[request as usize].clone());
                }
                Output::Event(HostEvent::Left { app }) => drop(self.left.insert(app)),
                _ => (),
            }
        }
    }

    fn fresh(&mut self) -> ThreadId {
        self.next_thread += 1;
        ThreadId(self.next_thread)
    }

    fn pick(&self, pick: usize) -> Option<(AppId, ThreadId)> {
        let all: Vec<_> = self.apps.iter().flat_map(|(&app, threads)| threads.iter().map(move |&t| (app, t))).collect();
        all.get(pick % all.len().max(1)).copied()
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Join { .. } => self.join(step),
            Step::Change { app, most, source, period } => {
                self.input(Input::Change { request: 0, app: AppId(app), contract: contract(source, most, period) })
            }
            Step::Leave { app } => self.input(Input::Leave { app: AppId(app) }),
            Step::Own { pick, source, class_a, most } => self.on_pick(pick, |outside, app, thread| {
                outside.request(
                    thread.0,
                    ApplicationScope::Thread(thread),
                    vec![thread],
                    [thread].into(),
                    Contract { class: class(class_a), ..contract(source, most, 0) },
                );
                outside.moved(app, thread);
            }),
            Step::Back { pick, to } => self.on_pick(pick, |outside, app, thread| {
                outside.input(Input::HandBack { app, thread, to: AppId(to) });
                outside.moved(app, thread);
            }),
            Step::Born { app } => self.born(AppId(app)),
            Step::Gone { pick } => self.on_pick(pick, Outside::gone),
            Step::Job { app, cost_ms, late_ms } => self.job(AppId(app), valid_job(self.now, cost_ms, late_ms)),
            Step::Invalid { app, release, finish } => self.job(AppId(app), invalid_job(release, finish)),
            Step::Ran { pick, used_us, slept } => self.on_pick(pick, |outside, app, thread| {
                let used = Nanos::from_micros(used_us);
                let (from, to) = (outside.now - used, outside.now);
                outside.input(Input::Ran { app, sample: Sample { thread, from, to, used, slept } });
            }),
            Step::Wait { us } => self.wait(Nanos::from_micros(us)),
            Step::Answer { settings, outcome } => (0..settings).for_each(|_| self.answer(outcome)),
        }
        self.check();
    }

    /// Acts on a thread of an application, if there is one.
    fn on_pick(&mut self, pick: usize, act: impl FnOnce(&mut Outside, AppId, ThreadId)) {
        if let Some((app, thread)) = self.pick(pick) {
            act(self, app, thread);
        }
    }

    fn join(&mut self, step: Step) {
        let Step::Join { source, class_a, program, threads, most, weight, reclaim } = step else { return };
        let reclaiming = if reclaim { Reclaiming::Grub } else { Reclaiming::Hard };
        let contract = Contract { class: class(class_a), weight, reclaiming, ..contract(source, most, 0) };
        let threads: Vec<ThreadId> = (0..threads).map(|_| self.fresh()).collect();
        let covers = match threads.first() {
            Some(&first) if !program => ApplicationScope::Thread(first),
            _ => ApplicationScope::Program,
        };
        let covered = threads.iter().take(if program { usize::MAX } else { 1 }).copied().collect();
        self.request(threads.first().map_or(1, |t| t.0), covers, threads, covered, contract);
    }

    /// Requests a contract for the threads `covered`.
    fn request(
        &mut self,
        pid: i32,
        covers: ApplicationScope,
        threads: Vec<ThreadId>,
        covered: BTreeSet<ThreadId>,
        contract: Contract,
    ) {
        let request = self.joining.len() as u64;
        self.joining.push(covered);
        self.input(Input::Join { request, pid, owner: ME, covers, threads, contract, cpus: None });
    }

    fn born(&mut self, app: AppId) {
        let thread = self.fresh();
        if let Some(threads) = self.apps.get_mut(&app) {
            threads.insert(thread);
        }
        self.input(Input::ThreadBorn { app, thread });
    }

    fn gone(&mut self, app: AppId, thread: ThreadId) {
        self.dead.insert(thread);
        self.kernel.remove(&thread);
        self.apps.get_mut(&app).unwrap().remove(&thread);
        self.input(Input::ThreadGone { app, thread });
    }

    fn job(&mut self, app: AppId, job: JobRecord) {
        self.input(Input::Job { app, event: JobEvent::End(job) });
    }

    /// Updates the record if the thread was moved from `app`.
    fn moved(&mut self, app: AppId, thread: ThreadId) {
        let Some(now) = self.host.covering(thread).filter(|now| *now != app) else { return };
        self.apps.get_mut(&app).unwrap().remove(&thread);
        self.apps.get_mut(&now).unwrap().insert(thread);
    }

    fn wait(&mut self, pause: Nanos) {
        let until = self.now + pause;
        for _ in 0..10_000 {
            match self.host.next_wakeup().filter(|&due| due <= until) {
                Some(due) => {
                    self.now = self.now.max(due);
                    self.input(Input::Tick);
                    self.check();
                }
                None => break,
            }
        }
        assert!(self.host.next_wakeup().is_none_or(|due| due > until), "the host has wake-ups without end");
        self.now = until;
        self.input(Input::Tick);
    }

    fn answer(&mut self, outcome: u8) {
        if self.told.is_empty() {
            return;
        }
        let (setting, sleeps) = self.told.remove(0);
        let outcome = match outcome {
            _ if self.dead.contains(&setting.thread) => Outcome::Gone,
            1 => Outcome::Busy,
            2 => Outcome::Denied(1),
            3 => Outcome::Gone,
            4 if sleeps => Outcome::Awake,
            _ => Outcome::Done,
        };
        match outcome {
            Outcome::Done if sleeps => drop(self.kernel.insert(setting.thread, asleep(setting))),
            Outcome::Done => self.obey(setting),
            Outcome::Gone => {
                self.dead.insert(setting.thread);
                self.kernel.remove(&setting.thread);
            }
            Outcome::Denied(_) if setting.reservation.is_none() => drop(self.stuck.insert(setting.thread)),
            _ => (),
        }
        self.input(Input::Applied { thread: setting.thread, outcome });
    }

    fn obey(&mut self, setting: Setting) {
        let new = setting.reservation.map_or(0, |r| u64::from(r.share().ppm()));
        let entry = self.kernel.entry(setting.thread).or_default();
        // A decrease under GRUB is free in the kernel's own sum at once, and only that sum matters there, even if
        // the reservation was hard before.
        let at_once = setting.reclaiming == Reclaiming::Grub && setting.reservation.is_some();
        if new < entry.0 && at_once {
            (entry.1, entry.2) = (Instant::ZERO, 0);
        } else if new < entry.0 {
            // The old budget may be consumed until the end of its server period, at most 10 ms.
            let still = if entry.1 > self.now { entry.2.max(entry.0) } else { entry.0 };
            (entry.1, entry.2) = (self.now + Nanos::from_millis(5), still);
        }
        entry.0 = new;
    }

    fn check(&self) {
        let consumable = |&(now, until, old): &(u64, Instant, u64)| if until > self.now { now.max(old) } else { now };
        // Threads that the kernel does not restore are outside the host's ledger; the kernel's own admission counts
        // them.
        let minded = self.kernel.iter().filter(|(thread, _)| !self.stuck.contains(thread));
        let sum: u64 = minded.map(|(_, value)| consumable(value)).sum();
        assert!(sum <= u64::from(share(CAPACITY).ppm()), "{sum} millionths may be consumed");
        assert!(self.host.held() <= share(CAPACITY), "{} held", self.host.held());
        assert!(self.host.status().granted <= share(CAPACITY));
    }

    /// All applications leave, and the mechanism obeys again.
    fn end(&mut self) {
        for app in self.apps.keys().copied().collect::<Vec<_>>() {
            self.input(Input::Leave { app });
        }
        for _ in 0..200 {
            while !self.told.is_empty() {
                self.answer(0);
                self.check();
            }
            self.wait(Nanos::from_millis(100));
        }
        let reserved: Vec<_> =
            self.kernel.iter().filter(|(thread, value)| value.0 > 0 && !self.stuck.contains(thread)).collect();
        assert!(reserved.is_empty(), "still under reservation: {reserved:?}");
        assert_eq!(self.left.len(), self.apps.len(), "some applications were not reported as left");
        assert_eq!(self.host.held(), Share::ZERO);
        assert_eq!(self.host.next_wakeup(), None);
    }
}

/// What a thread lost while it slept it cannot consume any more.
fn asleep(setting: Setting) -> (u64, Instant, u64) {
    (setting.reservation.map_or(0, |r| u64::from(r.share().ppm())), Instant::ZERO, 0)
}

fn class(is_a: bool) -> Class {
    if is_a { Class::A } else { Class::C }
}

/// A job that finishes now, this long after its deadline.
fn valid_job(finish: Instant, cost_ms: u64, late_ms: u64) -> JobRecord {
    let release = finish - T - Nanos::from_millis(late_ms);
    let cost = Nanos::from_millis(cost_ms);
    JobRecord { k: finish.get() / T.get(), release, finish, cost, next: Foresight::Nothing }
}

fn invalid_job(release: u64, finish: u64) -> JobRecord {
    let (release, finish) = (Instant::new(release), Instant::new(finish));
    JobRecord { k: u64::MAX, release, finish, cost: Nanos::MAX, next: Foresight::Hint(-1e300) }
}

fn contract(source: u8, most: u32, period: u8) -> Contract {
    let mut contract = marked();
    let sources = [JobSource::Marked, JobSource::Activations, JobSource::Consumption, JobSource::Auto];
    contract.jobs = sources[source as usize % 4];
    contract.max_bandwidth = share(most);
    contract.server_period = [P, Nanos::from_millis(5), T][period as usize % 3];
    contract
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 200_000, ..ProptestConfig::default() })]

    #[test]
    fn the_capacity_is_never_exceeded_and_every_thread_is_restored(steps in prop::collection::vec(step(), 1..200)) {
        let mut outside = Outside::new();
        for step in steps {
            outside.run(step);
        }
        outside.end();
    }
}

/// Found by the property above.
#[test]
fn a_leaving_application_ends_when_its_last_thread_is_handed_back() {
    let join = |program, threads| Step::Join {
        source: 0,
        class_a: false,
        program,
        threads,
        most: 1,
        weight: 1,
        reclaim: false,
    };
    let steps = [
        join(true, 2),
        Step::Born { app: 1 },
        Step::Own { pick: 0, source: 0, class_a: false, most: 1 },
        join(false, 1),
        Step::Job { app: 1, cost_ms: 0, late_ms: 0 },
        Step::Born { app: 3 },
        Step::Gone { pick: 0 },
        Step::Leave { app: 3 },
        Step::Back { pick: 46, to: 1 },
    ];
    let mut outside = Outside::new();
    steps.into_iter().for_each(|step| outside.run(step));
    outside.end();
}

/// Found by the property above, which counted a hard reservation with its old value after it was decreased under
/// GRUB.
#[test]
fn a_hard_reservation_that_is_decreased_under_grub_counts_with_its_new_value() {
    let join = |class_a, program, threads, most, weight| Step::Join {
        source: 0,
        class_a,
        program,
        threads,
        most,
        weight,
        reclaim: false,
    };
    let steps = [
        join(false, true, 6, 5, 1),
        join(true, false, 1, 92, 1),
        Step::Own { pick: 22, source: 0, class_a: true, most: 47 },
        Step::Answer { settings: 3, outcome: 4 },
        Step::Ran { pick: 22, used_us: 63, slept: false },
        Step::Wait { us: 40_000 },
        Step::Own { pick: 21, source: 0, class_a: false, most: 5 },
        Step::Answer { settings: 7, outcome: 0 },
        join(false, false, 1, 33, 8),
        Step::Answer { settings: 9, outcome: 0 },
    ];
    let mut outside = Outside::new();
    steps.into_iter().for_each(|step| outside.run(step));
    outside.end();
}
