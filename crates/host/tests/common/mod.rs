//! A host with a mechanism that obeys, or not as the test wants, and records what it is sent.
#![allow(dead_code)]

use std::collections::{BTreeMap, VecDeque};

use qfabric_host::{Host, HostConfig, HostEvent, Input, Limits, Outcome, Output};
use qfabric_types::api::timeline::EndedJob;
use qfabric_types::api::{ApplicationScope, Problem};
use qfabric_types::ring::JobEvent;
use qfabric_types::{
    AppId, Contract, Foresight, Instant, JobRecord, JobSource, Nanos, Owner, Reservation, Sample, Setting, Share,
    ThreadId,
};

pub(crate) const ME: Owner = Owner { uid: 1000, gid: 100 };
pub(crate) const T: Nanos = Nanos::from_millis(40);
pub(crate) const P: Nanos = Nanos::from_millis(10);

pub(crate) fn share(percent: u32) -> Share {
    Share::from_ppm(percent * 10_000)
}

pub(crate) fn at(ms: u64) -> Instant {
    Instant::new(ms * 1_000_000)
}

/// A contract for marked jobs every 40 ms, with a server period of 10 ms, predicted by the last job.
pub(crate) fn marked() -> Contract {
    let mut contract = Contract::new("player", T);
    (contract.jobs, contract.predictor) = (JobSource::Marked, "ma:1".parse().unwrap());
    contract.rho = 0.0;
    contract
}

/// The host and the reservations in force.
pub(crate) struct Bench {
    pub host: Host,
    pub now: Instant,
    pub kernel: BTreeMap<ThreadId, Reservation>,
    pub events: Vec<HostEvent>,
    pub jobs: Vec<(AppId, EndedJob)>,
    pub settings: Vec<Setting>,
    /// Answers of the mechanism to the next settings; afterwards it obeys.
    pub outcomes: VecDeque<Outcome>,
    /// Whether settings wait in `unanswered` instead of being answered at once.
    pub hold_back: bool,
    pub unanswered: VecDeque<Setting>,
    request: u64,
}

impl Bench {
    pub(crate) fn new(capacity: Share) -> Self {
        Bench::with_limits(Limits::of_capacity(capacity))
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        Bench::with_config(HostConfig { limits, max_threads: 8, ..HostConfig::default() })
    }

    pub(crate) fn with_config(config: HostConfig) -> Self {
        Bench {
            host: Host::new(config),
            now: at(1_000),
            kernel: BTreeMap::new(),
            events: Vec::new(),
            jobs: Vec::new(),
            settings: Vec::new(),
            outcomes: VecDeque::new(),
            hold_back: false,
            unanswered: VecDeque::new(),
            request: 0,
        }
    }

    pub(crate) fn input(&mut self, input: Input) -> Option<Result<AppId, Problem>> {
        self.host.handle(input, self.now);
        self.drain()
    }

    fn drain(&mut self) -> Option<Result<AppId, Problem>> {
        let mut answer = None;
        while let Some(output) = self.host.poll() {
            match output {
                Output::Admitted { app, .. } | Output::Changed { app, .. } => answer = Some(Ok(app)),
                Output::Refused { problem, .. } => answer = Some(Err(problem)),
                Output::Event(event) => self.events.push(event),
                Output::Job { app, job } => self.jobs.push((app, job)),
                Output::Set(setting) | Output::GiveBack(setting) if self.hold_back => {
                    self.unanswered.push_back(setting)
                }
                Output::Set(setting) | Output::GiveBack(setting) => self.apply(setting),
            }
        }
        answer
    }

    pub(crate) fn apply(&mut self, setting: Setting) {
        self.settings.push(setting);
        let outcome = self.outcomes.pop_front().unwrap_or(Outcome::Done);
        match (outcome, setting.reservation) {
            (Outcome::Done, Some(reservation)) => drop(self.kernel.insert(setting.thread, reservation)),
            (Outcome::Done, None) | (Outcome::Gone, _) => drop(self.kernel.remove(&setting.thread)),
            _ => (),
        }
        self.host.handle(Input::Applied { thread: setting.thread, outcome }, self.now);
    }

    /// Answers the waiting settings.
    pub(crate) fn catch_up(&mut self) {
        while let Some(setting) = self.unanswered.pop_front() {
            self.apply(setting);
            self.drain();
        }
    }

    /// Lets time pass, and wakes the host whenever it is due.
    pub(crate) fn wait_until(&mut self, moment: Instant) {
        for _ in 0..100_000 {
            match self.host.next_wakeup().filter(|&due| due <= moment) {
                Some(due) => {
                    self.now = self.now.max(due);
                    self.input(Input::Tick);
                }
                None => break,
            }
        }
        assert!(self.host.next_wakeup().is_none_or(|due| due > moment), "the host has wake-ups without end");
        self.now = moment;
        self.input(Input::Tick);
    }

    pub(crate) fn join(
        &mut self,
        contract: &Contract,
        covers: ApplicationScope,
        threads: &[i32],
    ) -> Result<AppId, Problem> {
        self.request += 1;
        let join = Input::Join {
            request: self.request,
            pid: threads.first().copied().unwrap_or(0),
            owner: ME,
            covers,
            threads: threads.iter().map(|&t| ThreadId(t)).collect(),
            contract: contract.clone(),
            cpus: None,
        };
        self.input(join).expect("every join is answered")
    }

    pub(crate) fn join_thread(&mut self, contract: &Contract, thread: i32) -> Result<AppId, Problem> {
        self.join(contract, ApplicationScope::Thread(ThreadId(thread)), &[thread])
    }

    pub(crate) fn change(&mut self, app: AppId, contract: &Contract) -> Result<AppId, Problem> {
        self.input(Input::Change { request: 0, app, contract: contract.clone() }).expect("every change is answered")
    }

    /// Ends job `k` of an application whose first job was released at 1 s, with `cost` ms of CPU time.
    pub(crate) fn job(&mut self, app: AppId, k: u64, cost_ms: u64, late_ms: u64) {
        let release = at(1_000 + 40 * k);
        let finish = release + T + Nanos::from_millis(late_ms);
        self.wait_until(finish);
        let job = JobRecord { k, release, finish, cost: Nanos::from_millis(cost_ms), next: Foresight::Nothing };
        self.input(Input::Job { app, event: JobEvent::End(job) });
    }

    pub(crate) fn ran(&mut self, app: AppId, thread: i32, from: Instant, used: Nanos, slept: bool) {
        let to = from + used;
        self.wait_until(to.max(self.now));
        let sample = Sample { thread: ThreadId(thread), from, to, used, slept };
        self.input(Input::Ran { app, sample });
    }

    /// Budget in force, in µs; 0 without a reservation.
    pub(crate) fn budget_us(&self, thread: i32) -> u64 {
        self.kernel.get(&ThreadId(thread)).map_or(0, |r| r.budget().get() / 1_000)
    }

    pub(crate) fn in_force(&self) -> Share {
        self.kernel.values().map(|r| r.share()).sum()
    }
}
