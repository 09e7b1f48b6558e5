//! The host: handles inputs, keeps applications and supervisor consistent, and outputs settings.
//!
//! ```text
//!   Job, Ran, Tick -> governor -> want -> supervisor -> grants -> split -> desired --queues--> Set
//!                                                                            ^                  |
//!                                                 ledger: does it fit yet? --'    Applied <-----'
//! ```
//! Each input changes as little as possible: a job costs a look-up, a decision, and a setting if the budget moved
//! by more than [`HYSTERESIS`]. A job allocates no memory.

mod abilities;
mod hotplug;
mod keeping;
mod mechanism;
mod moving;
mod placing;
mod settings;

use std::collections::VecDeque;

use qfabric_broker::{Limits, Partition, Supervisor};
use qfabric_control::utility::Tables;
use qfabric_types::api::{Application, ApplicationScope, HostStatus, Problem};
use qfabric_types::ring::{Grant, JobEvent};
use qfabric_types::{
    AppId, Contract, Instant, JobRecord, JobSource, MechanismName, Nanos, Owner, Sample, Share, ThreadId,
};

pub(crate) use abilities::FEEDBACK;

use crate::app::{App, guarantee};
use crate::ledger::Ledger;
use crate::{HostConfig, HostEvent, Input, Output, problem, utility};

/// Smaller changes of wants and smaller increases are not worth a setting: a two-thousandth of a CPU, 20 µs in 10
/// ms. This is far below the spread of predictors and above the noise of a constant job.
pub(crate) const HYSTERESIS: Share = Share::from_ppm(500);
/// Default budget of the thread that carries out the host's decisions, in each [`CONTROL_PERIOD`]; it reclaims.
pub const CONTROL_BUDGET: Nanos = Nanos::from_micros(100);
/// Default period of that thread.
pub const CONTROL_PERIOD: Nanos = Nanos::from_millis(2);

/// One host: the contracts of applications, and the reservation that every thread should have.
pub struct Host {
    config: HostConfig,
    now: Instant,
    next_app: u64,
    books: Supervisor,
    /// The promises on each CPU, if servers are bound to CPUs.
    partition: Option<Partition>,
    /// For each CPU: whether its promises fit only with windows, so that periods are aligned.
    aligned_on: Vec<bool>,
    ledger: Ledger,
    /// In ascending order of their numbers.
    apps: Vec<App>,
    /// The application that covers each thread, in ascending order of threads.
    covered: Vec<(ThreadId, AppId)>,
    outbox: VecDeque<Output>,
    shrinks: VecDeque<(AppId, ThreadId)>,
    grows: VecDeque<(AppId, ThreadId)>,
    /// Settings sent to the mechanism and not answered yet, in order.
    in_flight: VecDeque<(AppId, ThreadId)>,
    /// A thread waits for room in the ledger.
    starved: bool,
    /// The jobs of all applications need a large part of the capacity.
    contended: bool,
    /// The sum that applications need, in millionths of one CPU, and the number of applications with a need.
    needs: (u64, usize),
    /// The sum of the applications' mean costs, in millionths of one CPU.
    costs: u64,
    /// These costs fill the capacity.
    full: bool,
    /// Shares kept for future applications.
    kept: Vec<AppId>,
    /// The earliest timer of all applications.
    due: Instant,
    ignored: u64,
}

impl Host {
    /// A host without promises.
    pub fn new(config: HostConfig) -> Self {
        let (partition, ledger) = placing::partition(&config);
        let config_cpus = config.features.cpus.len();
        Host {
            books: Supervisor::new(config.limits.clone()),
            config,
            now: Instant::ZERO,
            next_app: 1,
            aligned_on: vec![false; config_cpus],
            partition,
            ledger,
            apps: Vec::new(),
            covered: Vec::new(),
            outbox: VecDeque::with_capacity(64),
            shrinks: VecDeque::with_capacity(64),
            grows: VecDeque::with_capacity(64),
            in_flight: VecDeque::with_capacity(64),
            starved: false,
            contended: false,
            needs: (0, 0),
            costs: 0,
            full: false,
            kept: Vec::new(),
            due: Instant::NEVER,
            ignored: 0,
        }
    }

    /// Handles an event at the time `now`. If `now` is before an earlier call, the latest time counts.
    pub fn handle(&mut self, input: Input, now: Instant) {
        self.now = self.now.max(now);
        self.on_time();
        match input {
            Input::Join { request, pid, owner, covers, threads, contract, cpus } => {
                let answer = match self.join(pid, owner, covers, &threads, contract, cpus) {
                    Ok(app) => Output::Admitted { request, app },
                    Err(problem) => Output::Refused { request, problem },
                };
                self.answer(answer);
            }
            Input::Change { request, app, contract } => {
                let answer = match self.change(app, contract) {
                    Ok(()) => Output::Changed { request, app },
                    Err(problem) => Output::Refused { request, problem },
                };
                self.answer(answer);
            }
            Input::Leave { app } => self.leave(app),
            Input::Keep { request, name, owner, share } => {
                let answer = match self.keep(&name, owner, share) {
                    Ok(app) => Output::Admitted { request, app },
                    Err(problem) => Output::Refused { request, problem },
                };
                self.answer(answer);
            }
            Input::ThreadBorn { app, thread } => self.thread_born(app, thread),
            Input::HandBack { app, thread, to } => self.hand_back(app, thread, to),
            Input::ThreadGone { app, thread } => self.thread_gone(app, thread),
            Input::Job { app, event } => self.job(app, event),
            Input::Served { app, thread, deadline } => self.served(app, thread, deadline),
            Input::Ran { app, sample } => self.ran(app, &sample),
            Input::Applied { thread, outcome } => self.applied(thread, outcome),
            Input::Capacity(capacity) => self.set_limits(Limits { capacity, ..self.config.limits.clone() }),
            Input::Limits { limits, max_applications, max_threads } => {
                (self.config.max_applications, self.config.max_threads) = (max_applications, max_threads);
                self.set_limits(limits);
            }
            Input::Mechanism { name, features, capacity } => self.replace_mechanism(name, features, capacity),
            Input::Cpus(online) => self.cpus_changed(&online),
            Input::Tick => (),
        }
    }

    /// The next output, if there is one. Call it until `None` after every [`Host::handle`]. Answers and events come
    /// first, then settings that decrease, then those that increase.
    pub fn poll(&mut self) -> Option<Output> {
        if let Some(output) = self.outbox.pop_front() {
            return Some(output);
        }
        while let Some((app, thread)) = self.shrinks.pop_front().or_else(|| self.grows.pop_front()) {
            if let Some(output) = self.issue(app, thread) {
                return Some(output);
            }
        }
        None
    }

    /// When [`Input::Tick`] is due at the latest; `None`: only events matter.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let due = self.due.min(self.books.next_wakeup().unwrap_or(Instant::NEVER));
        (due != Instant::NEVER).then_some(due)
    }

    /// Until this time nothing needs to look at the application's ring: its next decision is due then, `min(P, 2
    /// ms)` before the release. [`Instant::ZERO`]: no job has ended yet, or the job is overdue; the application
    /// must wake the daemon.
    pub fn look_at(&self, app: AppId) -> Instant {
        self.find(app).map_or(Instant::ZERO, |at| self.apps[at].look)
    }

    /// The lead thread, whose jobs govern the application's budget; `None` under a contract that follows
    /// consumption alone.
    pub fn lead(&self, app: AppId) -> Option<ThreadId> {
        let app = &self.apps[self.find(app)?];
        app.lead().filter(|_| app.contract.jobs != JobSource::Consumption)
    }

    /// The grant that the application's ring shows.
    pub fn grant(&self, app: AppId) -> Option<Grant> {
        self.find(app).map(|at| self.apps[at].grant())
    }

    /// The status of one application; `None` if it is leaving.
    pub fn application(&self, app: AppId) -> Option<Application> {
        self.find_present(app).ok().map(|at| self.apps[at].application(self.now))
    }

    /// The contract of one application, with the profile that [`Host::application`] leaves out; `None` if it is
    /// leaving.
    pub fn contract(&self, app: AppId) -> Option<&Contract> {
        self.find_present(app).ok().map(|at| &self.apps[at].contract)
    }

    /// Jobs of an application that ended, and the number of misses among them. A change of the period resets both.
    pub fn jobs(&self, app: AppId) -> Option<(u64, u64)> {
        self.find(app).map(|at| self.apps[at].jobs())
    }

    /// The bandwidth of all threads of an application together, as the mechanism carried it out last.
    pub fn reserved(&self, app: AppId) -> Share {
        self.find(app).map_or(Share::ZERO, |at| self.apps[at].bandwidth_in_force())
    }

    /// The application that covers `thread`.
    pub fn covering(&self, thread: ThreadId) -> Option<AppId> {
        let at = self.covered.binary_search_by_key(&thread, |&(thread, _)| thread).ok()?;
        Some(self.covered[at].1)
    }

    /// The status of the whole host.
    pub fn status(&self) -> HostStatus {
        let present = self.apps.iter().filter(|app| !app.leaving);
        HostStatus {
            version: self.config.version.clone(),
            mechanism: self.config.mechanism.clone(),
            capacity: self.books.capacity(),
            guaranteed: self.books.guaranteed(),
            granted: self.books.granted(),
            applications: present.map(|app| app.application(self.now)).collect(),
            cpus: self.cpu_statuses(),
            fallback: None,
            loans: Vec::new(),
            tables: Vec::new(),
            joint: Vec::new(),
            configured: Vec::new(),
            memory: None,
        }
    }

    /// Bandwidth that may still be guaranteed.
    pub fn free(&self) -> Share {
        self.books.capacity().saturating_sub(self.books.guaranteed())
    }

    /// Sum of all guarantees.
    pub fn guaranteed(&self) -> Share {
        self.books.guaranteed()
    }

    /// Sum of the bandwidth that threads may be consuming under reservations: applied, sent to the mechanism, or
    /// decreased less than a server period ago (except by giving back). Never above the capacity, except while a
    /// lowered capacity takes effect.
    pub fn held(&self) -> Share {
        self.ledger.held()
    }

    fn find(&self, app: AppId) -> Option<usize> {
        self.apps.binary_search_by_key(&app, |a| a.id).ok()
    }

    fn find_present(&self, app: AppId) -> Result<usize, Problem> {
        self.find(app).filter(|&at| !self.apps[at].leaving).ok_or_else(|| problem::not_found(app))
    }

    /// Answers come before the settings that follow from them, but after earlier events.
    fn answer(&mut self, answer: Output) {
        self.outbox.push_back(answer);
    }

    fn event(&mut self, event: HostEvent) {
        self.outbox.push_back(Output::Event(event));
    }

    /// Reports the job of an application that has just ended.
    fn report_job(&mut self, at: usize) {
        let app = &mut self.apps[at];
        if let Some(job) = app.take_ended() {
            self.outbox.push_back(Output::Job { app: app.id, job });
        }
    }

    /// Counts an inconsistent input. Reported at powers of two, so that a flood does not flood the log.
    fn ignore(&mut self) {
        self.ignored += 1;
        if self.ignored.is_power_of_two() {
            self.event(HostEvent::Ignored { count: self.ignored });
        }
    }

    fn join(
        &mut self,
        pid: i32,
        owner: Owner,
        covers: ApplicationScope,
        threads: &[ThreadId],
        contract: Contract,
        cpus: Option<Vec<u32>>,
    ) -> Result<AppId, Problem> {
        let one;
        let threads = match covers {
            ApplicationScope::Program => threads,
            ApplicationScope::Thread(thread) => {
                one = [thread];
                &one[..]
            }
        };
        self.check_join(owner, threads, &contract)?;
        let app = AppId(self.next_app);
        let guarantee = guarantee(&contract).map_err(|reason| problem::no_guarantee(&reason))?;
        let utility = tables_of(&contract)?;
        let before = self.promise(app, &contract, guarantee.share, cpus.as_deref())?;
        if let Err(refusal) = self.books.admit(app, owner, &contract, guarantee.share) {
            self.unpromise(before);
            return Err(refusal.into());
        }
        self.next_app += 1;
        let joint = self.config.features.joins_threads();
        let mut joining = App::new(app, pid, owner, covers, contract, guarantee, joint);
        (joining.cpus, joining.has_slots) = (cpus, self.config.features.slots.is_some());
        self.books.set_utility(app, utility.as_ref().map(utility::steps), self.now);
        joining.utility = utility;
        joining.set_full(self.full);
        self.apps.push(joining);
        for &thread in threads {
            self.take_over(thread, app);
        }
        self.make_room_for(app);
        self.recompute_shares();
        self.refresh(self.apps.len() - 1);
        Ok(app)
    }

    fn check_join(&self, owner: Owner, threads: &[ThreadId], contract: &Contract) -> Result<(), Problem> {
        contract.check().map_err(|reason| reason.problem())?;
        self.check_abilities(contract)?;
        if self.apps.len() >= self.config.max_applications {
            return Err(problem::too_many_applications(self.config.max_applications));
        }
        if self.config.limits.user_cap(owner) == Some(Share::ZERO) {
            return Err(problem::not_permitted(owner));
        }
        if threads.is_empty() {
            return Err(problem::no_threads());
        }
        if threads.len() > self.config.max_threads {
            return Err(problem::too_many_threads(threads.len(), self.config.max_threads));
        }
        let covered = |&thread: &ThreadId| Some((thread, self.covering(thread).filter(|app| !self.gives_way(*app))?));
        match threads.iter().find_map(covered) {
            Some((thread, app)) => Err(problem::already_covered(thread, app)),
            None => Ok(()),
        }
    }

    /// Refuses a contract that the mechanism in force cannot serve.
    fn check_abilities(&self, contract: &Contract) -> Result<(), Problem> {
        match abilities::lacking(&self.config.features, contract) {
            Some(what) => Err(problem::incapable(&self.config.mechanism, what, &self.serving(contract))),
            None => Ok(()),
        }
    }

    /// The other mechanisms of this machine that can serve the contract.
    fn serving(&self, contract: &Contract) -> Vec<MechanismName> {
        let others = self.config.alternatives.iter().filter(|(name, _)| name.name() != self.config.mechanism);
        others.filter(|(_, features)| abilities::lacking(features, contract).is_none()).map(|(name, _)| *name).collect()
    }

    fn change(&mut self, app: AppId, contract: Contract) -> Result<(), Problem> {
        let at = self.find_present(app)?;
        contract.check().map_err(|reason| reason.problem())?;
        self.check_abilities(&contract)?;
        let guarantee = guarantee(&contract).map_err(|reason| problem::no_guarantee(&reason))?;
        let utility = tables_of(&contract)?;
        let cpus = self.apps[at].cpus.clone();
        let before = self.promise(app, &contract, guarantee.share, cpus.as_deref())?;
        if let Err(refusal) = self.books.change(app, &contract, guarantee.share, self.now) {
            self.unpromise(before);
            return Err(refusal.into());
        }
        self.books.set_utility(app, utility.as_ref().map(utility::steps), self.now);
        self.apps[at].utility = utility;
        self.apps[at].change(contract, guarantee);
        self.make_room_for(app);
        self.recompute_shares();
        self.refresh(at);
        Ok(())
    }

    fn leave(&mut self, app: AppId) {
        if self.release_kept(app) {
            return;
        }
        let Ok(at) = self.find_present(app) else { return self.ignore() };
        self.apps[at].leaving = true;
        self.books.release(app, self.now);
        self.end_promise(app);
        self.recompute_shares();
        self.refresh(at);
        self.remove_if_restored(at);
    }

    /// Removes a leaving application when all its threads are restored.
    fn remove_if_restored(&mut self, at: usize) {
        if !self.apps[at].leaving || !self.apps[at].is_restored() {
            return;
        }
        let mut app = self.apps.remove(at);
        self.covered.retain(|&(_, owner)| owner != app.id);
        app.threads.iter_mut().for_each(|thread| self.ledger.release_later(thread, self.now));
        self.due = self.due.min(self.ledger.next_pending());
        self.event(HostEvent::Left { app: app.id });
    }

    fn cover(&mut self, at: usize, thread: ThreadId) {
        if let Err(place) = self.covered.binary_search_by_key(&thread, |&(thread, _)| thread) {
            self.covered.insert(place, (thread, self.apps[at].id));
            self.apps[at].add(thread);
        }
    }

    fn thread_born(&mut self, app: AppId, thread: ThreadId) {
        let Ok(at) = self.find_present(app) else { return self.ignore() };
        if self.apps[at].covers != ApplicationScope::Program || self.covering(thread).is_some() {
            return;
        }
        if self.apps[at].threads.len() >= self.config.max_threads {
            return self.leave_out(at, thread);
        }
        self.cover(at, thread);
        self.recompute_shares();
        self.refresh(at);
    }

    /// Counts a thread beyond the limit. Reported at powers of two, so that a fork bomb does not flood the log.
    fn leave_out(&mut self, at: usize, thread: ThreadId) {
        let app = &mut self.apps[at];
        app.left_out += 1;
        if app.left_out.is_power_of_two() {
            let event = HostEvent::TooManyThreads { app: app.id, thread, limit: self.config.max_threads };
            self.event(event);
        }
    }

    fn thread_gone(&mut self, app: AppId, thread: ThreadId) {
        let Some(at) = self.find(app) else { return self.ignore() };
        let Some(index) = self.apps[at].find(thread) else { return };
        let mut gone = self.apps[at].remove(index);
        self.covered.retain(|&(covered, _)| covered != thread);
        self.ledger.forget(&mut gone);
        self.apps[at].note_reserved(self.now);
        self.serve_starved();
        if self.apps[at].leaving {
            return self.remove_if_restored(at);
        }
        if self.apps[at].threads.is_empty() {
            self.event(HostEvent::Empty { app });
        }
        self.recompute_shares();
        self.refresh(at);
    }

    fn job(&mut self, app: AppId, event: JobEvent) {
        let Ok(at) = self.find_present(app) else { return self.ignore() };
        match event {
            JobEvent::End(job) if !self.is_possible(at, &job) => return self.ignore(),
            JobEvent::End(job) => self.apps[at].on_job(job, self.now),
            JobEvent::Begin { known, .. } => self.apps[at].on_begin(known),
            // Only of jobs for which the clock changes.
            JobEvent::Checkpoint(checkpoint) => return self.apps[at].leave_out(checkpoint.k),
        }
        self.report_job(at);
        self.due = self.due.min(self.apps[at].due);
        self.refresh(at);
    }

    /// Whether the times of the job are possible: it ended after it began, and not after about now.
    fn is_possible(&self, at: usize, job: &JobRecord) -> bool {
        let latest = self.now + self.apps[at].contract.period;
        job.release <= latest && job.finish <= latest && job.release <= job.finish
    }

    fn served(&mut self, app: AppId, thread: ThreadId, deadline: Instant) {
        let Ok(at) = self.find_present(app) else { return self.ignore() };
        if let Some(index) = self.apps[at].find(thread) {
            self.apps[at].threads[index].served = Some(deadline);
        }
    }

    fn ran(&mut self, app: AppId, sample: &Sample) {
        let Ok(at) = self.find_present(app) else { return self.ignore() };
        // Threads that were left out or have ended are observed as well.
        let Some(index) = self.apps[at].find(sample.thread) else { return };
        if sample.from > sample.to || sample.used > sample.to.since(sample.from) + Nanos::from_millis(1) {
            return self.ignore();
        }
        self.apps[at].on_ran(index, sample);
        self.report_job(at);
        if self.config.features.rescues && self.apps[at].rescue(index) {
            self.event(HostEvent::Rescue { app, thread: sample.thread });
        }
        self.due = self.due.min(self.apps[at].due);
        self.refresh(at);
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// Applies changed limits: from the administrator, from a new capacity, or from another mechanism.
    fn set_limits(&mut self, limits: Limits) {
        let capacity = limits.capacity;
        self.config.limits = limits.clone();
        self.books.set_limits(limits, self.now);
        let guaranteed = self.books.guaranteed();
        if guaranteed > capacity {
            self.event(HostEvent::GuaranteesCut { capacity, guaranteed });
        }
        self.recompute_shares();
        self.follow_grants();
        self.serve_starved();
    }
}

/// The tables of a contract's utility functions, if it has any.
fn tables_of(contract: &Contract) -> Result<Option<Tables>, Problem> {
    contract.utility.as_ref().map(|functions| utility::tables(functions, contract.weight)).transpose()
}
