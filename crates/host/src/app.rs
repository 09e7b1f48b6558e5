//! One application: its contract, its threads and their governors, and the split of its grant among them.
//!
//! **Governors.** The *lead* thread does the jobs: the covered thread, or a program's main thread until another
//! thread is seen to use half as much CPU time again. Its jobs govern it; consumption governs the other threads.
//! Under `JobSource::Consumption`, consumption governs all threads.
//!
//! **Splitting.** Every thread gets what its governor wants if the grant covers that; otherwise all get the same
//! fraction. A thread whose part is below what the kernel accepts has no reservation.
//!
//! **Static reservations** have no controller. If the mechanism has servers for several threads, the reservation is
//! one server: each thread is sent the same setting, and the first one is counted for all. Otherwise a fixed share
//! is a server per thread: the oldest threads get theirs first, and only whole ones, because a part of a hard
//! budget is worse than none.

mod overload;
mod reserved;
pub(crate) mod rest;
mod terms;

use qfabric_control::TaskController;
use qfabric_control::guarantee::{self, Guarantee, NoGuarantee};
use qfabric_control::utility::Tables;
use qfabric_types::api::timeline::EndedJob;
use qfabric_types::api::{Application, ApplicationScope, FoundRhythm, ThreadStatus};
use qfabric_types::ring::Grant;
use qfabric_types::{
    AppId, Contract, Instant, JobRecord, JobSource, Nanos, Owner, Quality, QualityMeter, Reclaiming, Reservation,
    Sample, Share, ThreadId, Usage, UtilityStatus,
};

use self::overload::ShortJobs;
use self::reserved::OverTime;
use self::rest::Rest;
use crate::consumption::Consumption;
use crate::found::Found;
use crate::rhythm::{News, Rhythms, rhythms_for};
use crate::thread::{Governor, Thread, Wait, millionths};

/// Time between the decision for a job and its release; one server period if that is shorter.
const LEAD: Nanos = Nanos::from_millis(2);
/// What a thread at rest keeps, unless there are many: enough to show that it wants more, or, if it reclaims, to be
/// seen waiting.
const FLOOR_HARD: Share = Share::from_ppm(5_000);
const FLOOR_RECLAIMING: Share = Share::from_ppm(1_000);
/// Number of periods between two elections of the lead thread.
const ELECTION: u64 = 16;

pub(crate) struct App {
    pub id: AppId,
    pub pid: i32,
    pub owner: Owner,
    pub covers: ApplicationScope,
    pub contract: Contract,
    pub guarantee: Guarantee,
    /// The tables of the contract's utility functions.
    pub utility: Option<Tables>,
    pub threads: Vec<Thread>,
    lead: Option<ThreadId>,
    elect_at: Instant,
    /// The share reported to the supervisor, and the share it granted.
    pub wanted: Share,
    pub granted: Share,
    /// When the daemon must look at its ring; ZERO: the application must wake the daemon.
    pub look: Instant,
    /// It is leaving, and ends when every thread is restored.
    pub leaving: bool,
    /// The mechanism in force cannot keep its promise: it receives nothing.
    pub suspended: bool,
    /// The mechanism in force has servers for several threads.
    pub joint: bool,
    /// The mechanism in force gives slots, which the end of a marked job gives back at once.
    pub has_slots: bool,
    /// The CPUs on which its threads might run when it joined; `None`: all.
    pub cpus: Option<Vec<u32>>,
    /// Its thread may rely on unused time of others, because few others compete for it.
    pub lent: bool,
    /// Whether a shortage was reported last, and when that last changed.
    pub saturated: bool,
    pub told_at: Instant,
    /// Number of threads left out because there are too many.
    pub left_out: u64,
    /// Searches for its period, if the contract leaves that to the host.
    rhythms: Option<Box<Rhythms>>,
    /// The earliest of its timers.
    pub due: Instant,
    rest: Rest,
    short_jobs: ShortJobs,
    /// Its needs and its mean costs, as counted in the host's sums.
    pub counted: (Share, Share),
    meter: QualityMeter,
    /// The job that ended last, until it is reported.
    ended: Option<EndedJob>,
    /// The reservations of all its threads together over time.
    reserved: OverTime,
    /// CPU time of all its threads that was observed from outside, and since when.
    ran: Nanos,
    ran_since: Option<Instant>,
    cost: Nanos,
    time: Nanos,
}

/// The time lead = min(P, 2 ms).
pub(crate) fn lead(contract: &Contract) -> Nanos {
    LEAD.min(contract.server_period)
}

/// The guarantee of `contract`: a static server, less the part that its window lets pass; for a fixed share, more
/// for further threads if the contract says so. With feedback, the guarantee of its class (AQuoSA §4.4).
pub(crate) fn guarantee(contract: &Contract) -> Result<Guarantee, NoGuarantee> {
    let more = contract.guaranteed.filter(|_| contract.service.is_none());
    match contract.promised() {
        Some(share) => Ok(Guarantee { share: share.max(more.unwrap_or_default()), invariance: None }),
        None => guarantee::guarantee(contract),
    }
}

impl App {
    pub(crate) fn new(
        id: AppId,
        pid: i32,
        owner: Owner,
        covers: ApplicationScope,
        contract: Contract,
        guarantee: Guarantee,
        joint: bool,
    ) -> Self {
        let meter = QualityMeter::new(contract.period, contract.early, contract.late);
        let jobs = contract.jobs;
        App {
            id,
            pid,
            owner,
            covers,
            guarantee,
            contract,
            utility: None,
            threads: Vec::new(),
            lead: None,
            elect_at: Instant::NEVER,
            wanted: Share::ZERO,
            granted: Share::ZERO,
            look: Instant::ZERO,
            leaving: false,
            suspended: false,
            joint,
            has_slots: false,
            cpus: None,
            lent: false,
            saturated: false,
            told_at: Instant::ZERO,
            left_out: 0,
            rhythms: rhythms_for(jobs),
            due: Instant::NEVER,
            rest: Rest::never(),
            short_jobs: ShortJobs::default(),
            counted: (Share::ZERO, Share::ZERO),
            meter,
            ended: None,
            reserved: OverTime::default(),
            ran: Nanos::ZERO,
            ran_since: None,
            cost: Nanos::ZERO,
            time: Nanos::ZERO,
        }
    }

    pub(crate) fn find(&self, thread: ThreadId) -> Option<usize> {
        self.threads.iter().position(|t| t.id == thread)
    }

    /// Adds a thread. The first one is the lead, until the program's main thread comes.
    pub(crate) fn add(&mut self, thread: ThreadId) {
        self.take_in(thread, |governor| Thread::new(thread, governor));
    }

    /// Adds a thread of another application, with its reservation.
    pub(crate) fn adopt(&mut self, thread: Thread) {
        self.take_in(thread.id, |governor| thread.handed_over(governor));
    }

    fn take_in(&mut self, thread: ThreadId, make: impl FnOnce(Governor) -> Thread) {
        let leads = self.lead.is_none() || thread.0 == self.pid;
        if let (true, Some(old)) = (leads, self.lead) {
            self.govern(old, false);
        }
        let governor = self.governor(leads);
        self.threads.push(make(governor));
        if leads {
            self.lead = Some(thread);
        }
    }

    /// Removes a thread; if it was the lead, another one becomes the lead.
    pub(crate) fn remove(&mut self, at: usize) -> Thread {
        let thread = self.threads.remove(at);
        if self.lead == Some(thread.id) {
            self.lead = self.threads.iter().max_by_key(|t| t.used).map(|t| t.id);
            // Consumption governs a thread in the same way whether it is the lead or not, so it keeps its governor:
            // a new one would request the maximum.
            if let Some(lead) = self.lead.filter(|_| self.source() != JobSource::Consumption) {
                self.govern(lead, true);
            }
        }
        thread
    }

    /// The present source of its jobs.
    fn source(&self) -> JobSource {
        match (self.contract.jobs, self.rhythm()) {
            (JobSource::Auto, Some(_)) => JobSource::Activations,
            (JobSource::Auto, None) => JobSource::Consumption,
            (source, _) => source,
        }
    }

    /// The found period in force.
    pub(crate) fn rhythm(&self) -> Option<FoundRhythm> {
        self.rhythms.as_ref()?.held()
    }

    fn governor(&self, leads: bool) -> Governor {
        let contract = &self.contract;
        match self.source() {
            JobSource::Marked if leads => Governor::Marked(TaskController::new(contract)),
            JobSource::Activations if leads => {
                Governor::Activations(TaskController::new(contract), Box::new(Found::new(contract, lead(contract))))
            }
            _ => Governor::Consumption(Consumption::new(contract, leads)),
        }
    }

    fn govern(&mut self, thread: ThreadId, leads: bool) {
        let governor = self.governor(leads);
        if let Some(at) = self.find(thread) {
            let old = std::mem::replace(&mut self.threads[at].governor, governor);
            self.threads[at].governor.inherit(old);
        }
    }

    /// Applies a changed contract. Controllers keep what they learned if the source of jobs stays.
    pub(crate) fn change(&mut self, contract: Contract, guarantee: Guarantee) {
        if contract.jobs != self.contract.jobs {
            self.rhythms = rhythms_for(contract.jobs);
        }
        let contract = match self.rhythm() {
            Some(found) => contract.with_period(found.period),
            None => contract,
        };
        if (contract.period, contract.early, contract.late)
            != (self.contract.period, self.contract.early, self.contract.late)
        {
            self.meter = QualityMeter::new(contract.period, contract.early, contract.late);
        }
        // The promised look follows the releases of the old period: the next job must wake the daemon.
        if (contract.period, contract.server_period) != (self.contract.period, self.contract.server_period) {
            self.look = Instant::ZERO;
        }
        (self.contract, self.suspended) = (contract, false);
        self.guarantee = guarantee;
        for at in 0..self.threads.len() {
            let fresh = self.governor(self.lead == Some(self.threads[at].id));
            let thread = &mut self.threads[at];
            if thread.wait == Wait::Denied && thread.applied.is_none() {
                thread.wait = Wait::No;
            }
            thread.denied = false;
            match (&mut thread.governor, fresh) {
                (Governor::Marked(old), Governor::Marked(_)) => old.on_change(&self.contract),
                (Governor::Activations(old, found), Governor::Activations(_, fresh)) => {
                    old.on_change(&self.contract);
                    *found = fresh;
                }
                (Governor::Consumption(old), Governor::Consumption(_)) => old.change(&self.contract),
                (governor, fresh) => *governor = fresh,
            }
        }
    }

    /// A marked job ended.
    pub(crate) fn on_job(&mut self, job: JobRecord, now: Instant) {
        let marked = |thread: &Thread| matches!(thread.governor, Governor::Marked(_));
        if let Some(at) = self.threads.iter().position(marked) {
            self.finish(at, job);
            self.judge_next(at, &job, now);
            self.begin_rest(job.release, now);
            let look = job.release + self.contract.period + self.contract.period - lead(&self.contract);
            // The end of a job that gives back must wake the daemon at once.
            let wakes = self.has_slots || self.gives_back();
            self.look = if look > now && !wakes { look } else { Instant::ZERO };
            // Usually later than before: an outdated timer would fire once per application and period.
            self.due = self.find_due();
        }
    }

    /// The clock changes within job `k`: its cost is not learned.
    pub(crate) fn leave_out(&mut self, k: u64) {
        for thread in &mut self.threads {
            if let Governor::Marked(controller) = &mut thread.governor {
                controller.leave_out(k);
            }
        }
    }

    /// Handles foresight for the job that begins.
    pub(crate) fn on_begin(&mut self, known: qfabric_types::Foresight) {
        self.end_rest();
        for thread in &mut self.threads {
            if let Governor::Marked(controller) = &mut thread.governor {
                controller.on_foresight(known);
            }
        }
    }

    /// A thread ran on a CPU.
    pub(crate) fn on_ran(&mut self, at: usize, sample: &Sample) {
        let several = self.threads.len() > 1;
        self.ran += sample.used;
        self.ran_since.get_or_insert(sample.from);
        let thread = &mut self.threads[at];
        thread.used += sample.used;
        let ended = match &mut thread.governor {
            Governor::Marked(_) => None,
            Governor::Activations(_, found) => found.ran(sample),
            Governor::Consumption(consumption) => {
                consumption.ran(sample);
                None
            }
        };
        self.due = self.due.min(thread.governor.due());
        let leads = self.lead == Some(thread.id);
        if let Some(rhythms) = self.rhythms.as_mut().filter(|_| leads) {
            rhythms.ran(sample);
            self.due = self.due.min(rhythms.due());
        }
        if let Some(job) = ended {
            self.finish(at, job);
        }
        if !leads {
            self.rest_idle_lead();
        }
        let elects = matches!(self.contract.jobs, JobSource::Activations | JobSource::Auto);
        if several && self.elect_at == Instant::NEVER && elects {
            self.elect_at = sample.to + self.contract.period.saturating_mul(ELECTION);
            self.due = self.due.min(self.elect_at);
        }
    }

    /// Closes what is due in all governors. Returns whether a want may have changed.
    pub(crate) fn on_time(&mut self, now: Instant) -> bool {
        let mut decided = false;
        for at in 0..self.threads.len() {
            decided |= self.govern_on_time(at, now);
        }
        if self.look != Instant::ZERO && now >= self.look {
            self.look = Instant::ZERO;
        }
        if now >= self.rest.due() {
            self.end_rest();
            decided = true;
        }
        if now >= self.elect_at {
            decided |= self.elect();
        }
        decided
    }

    /// Looks for a period, if the contract leaves it to the host. If the period changes, the statistics begin again.
    pub(crate) fn look_for_rhythm(&mut self, now: Instant) -> Option<News> {
        let news = self.rhythms.as_mut()?.on_time(now)?;
        let Contract { period, early, late, .. } = self.contract;
        self.meter = QualityMeter::new(period, early, late);
        (self.cost, self.time) = (Nanos::ZERO, Nanos::ZERO);
        Some(news)
    }

    /// The found period could not be applied.
    pub(crate) fn forget_rhythm(&mut self) {
        self.rhythms.iter_mut().for_each(|rhythms| rhythms.forget());
    }

    fn govern_on_time(&mut self, at: usize, now: Instant) -> bool {
        let thread = &mut self.threads[at];
        let granted = thread.applied.map(|value| value.reservation);
        match &mut thread.governor {
            Governor::Marked(_) => false,
            Governor::Activations(_, found) => {
                let (ended, counted) = found.on_time(now, granted);
                if let Some(job) = ended {
                    self.finish(at, job);
                }
                ended.is_some() || counted
            }
            Governor::Consumption(consumption) => consumption.on_time(now, granted).is_some(),
        }
    }

    /// A job of thread `at` ended: the controller decides, the meter counts.
    fn finish(&mut self, at: usize, job: JobRecord) {
        self.threads[at].rescued = false;
        self.look_for_shortage(at);
        let thread = &mut self.threads[at];
        let granted = thread.applied.map(|value| value.reservation);
        let (Governor::Marked(controller) | Governor::Activations(controller, _)) = &mut thread.governor else {
            return;
        };
        let foreseen = controller.budget().saturating_mul(self.contract.periods_per_job());
        controller.on_usage(&Usage { job, granted, served: thread.served.take() });
        let (deadline, error_ns) = (controller.deadline(job.release), controller.error_ns());
        let missed = job.finish > deadline;
        self.meter.count(error_ns as f64, bandwidth(granted), missed, Some(job.finish));
        let JobRecord { release: release_ns, finish: finish_ns, cost: cost_ns, .. } = job;
        let (number, deadline_ns) = (self.meter.jobs(), deadline);
        self.ended = Some(EndedJob { number, release_ns, deadline_ns, finish_ns, cost_ns, error_ns, missed });
        if let Governor::Activations(_, found) = &mut thread.governor {
            found.count(missed);
        }
        self.compare(foreseen, job.cost);
        self.cost += job.cost;
        self.time += self.contract.period;
    }

    /// The job that ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Option<EndedJob> {
        self.ended.take()
    }

    /// The bandwidth of all its threads together.
    pub(crate) fn bandwidth_in_force(&self) -> Share {
        self.threads.iter().filter_map(|thread| thread.applied).map(|value| value.counted).sum()
    }

    /// Records the reservations of all its threads from `now` on.
    pub(crate) fn note_reserved(&mut self, now: Instant) {
        let held: u64 = self.threads.iter().map(|thread| millionths(thread.applied)).sum();
        self.reserved.set(held as f64 / 1e6, now);
    }

    /// A lead thread starts with all that the contract allows and is observed only when it runs. A lead that sleeps
    /// while others work (the main thread of a program that was reserved while it ran) gives this up.
    fn rest_idle_lead(&mut self) {
        let Some(lead) = self.lead else { return };
        let is_idle = |thread: &Thread| matches!(&thread.governor, Governor::Consumption(c) if c.is_untried());
        if self.find(lead).is_some_and(|at| is_idle(&self.threads[at])) {
            self.govern(lead, false);
        }
    }

    /// The busiest thread becomes the lead if it uses half as much CPU time again as the present lead.
    fn elect(&mut self) -> bool {
        self.elect_at = Instant::NEVER;
        let used = |id| self.find(id).map_or(Nanos::ZERO, |at| self.threads[at].used);
        let led = self.lead.map_or(Nanos::ZERO, used);
        let busiest = self.threads.iter().max_by_key(|t| t.used).map(|t| (t.id, t.used));
        self.threads.iter_mut().for_each(|t| t.used = Nanos::ZERO);
        match (self.lead, busiest) {
            (Some(old), Some((new, used))) if new != old && used.get() > led.get() + led.get() / 2 => {
                self.lead = Some(new);
                self.rhythms.iter_mut().for_each(|rhythms| rhythms.restart());
                // Consumption governs a thread in the same way whether it is the lead or not.
                if self.source() != JobSource::Consumption {
                    self.govern(old, false);
                    self.govern(new, true);
                }
                true
            }
            _ => false,
        }
    }

    /// Asks every governor once for the present needs and wants of its thread.
    pub(crate) fn weigh(&mut self) {
        for at in 0..self.threads.len() {
            self.threads[at].needs = self.needed_by(&self.threads[at]);
            self.threads[at].wants = self.wanted_by(&self.threads[at]);
        }
    }

    /// The sum of its threads' wants, as weighed; 0 while it leaves.
    pub(crate) fn wants(&self) -> Share {
        self.sum(|thread| thread.wants)
    }

    fn sum(&self, of: impl Fn(&Thread) -> Share) -> Share {
        if self.leaving || self.suspended {
            return Share::ZERO;
        }
        self.threads.iter().map(of).sum::<Share>().min(self.contract.max_bandwidth)
    }

    fn wanted_by(&self, thread: &Thread) -> Share {
        if thread.denied {
            return Share::ZERO;
        }
        if let Some(promised) = self.contract.promised() {
            let counts = !self.shares_server() || self.carrier() == Some(thread.id);
            return if counts { promised } else { Share::ZERO };
        }
        self.request(self.mean_of(thread).map_or(thread.needs, |mean| mean.min(thread.needs)))
    }

    /// The mean consumption of a thread, if that is enough: unused time of others covers the rest of its jobs'
    /// needs.
    fn mean_of(&self, thread: &Thread) -> Option<Share> {
        let lent = self.lent && !thread.rescued;
        let Governor::Activations(_, found) = &thread.governor else { return None };
        let mean = lent.then(|| found.mean(self.floor()))??;
        Some(Share::of_budget(mean, self.contract.server_period))
    }

    /// The weighed bandwidth that its controllers predict for its jobs, independent of its share: the maximum while a
    /// controller has no prediction, 0 while the application leaves.
    pub(crate) fn needs(&self) -> Share {
        self.sum(|thread| thread.needs)
    }

    fn needed_by(&self, thread: &Thread) -> Share {
        if thread.denied {
            return Share::ZERO;
        }
        let all = thread.rescued || self.control_of(thread.id).is_some();
        let budget = if all { self.contract.max_budget() } else { thread.governor.budget(self.floor()) };
        Share::of_budget(budget, self.contract.server_period)
    }

    /// The floor of a thread at rest; all threads together keep at most a quarter of the largest bandwidth.
    fn floor(&self) -> Nanos {
        let quarter = self.contract.max_bandwidth.ppm() / 4;
        let most = if self.contract.reclaiming == Reclaiming::Hard { FLOOR_HARD } else { FLOOR_RECLAIMING };
        let share = Share::from_ppm((quarter / self.threads.len().max(1) as u32).min(most.ppm()));
        share.budget_in(self.contract.server_period)
    }

    /// Splits the grant among the threads in proportion to their wants, as weighed.
    pub(crate) fn split(&mut self) {
        let granted = if self.leaving || self.suspended { Share::ZERO } else { self.granted };
        let sum: Share = self.threads.iter().map(|thread| thread.wants).sum();
        let in_order = self.contract.fixed.is_some();
        let mut left = granted;
        for at in 0..self.threads.len() {
            let wanted = self.threads[at].wants;
            let part = match sum <= granted {
                true => wanted,
                false if in_order => whole(wanted, left, left == granted),
                false => fraction(wanted, granted, sum),
            };
            left = left.saturating_sub(part);
            let value = if granted == Share::ZERO { None } else { self.value(&self.threads[at], part) };
            self.threads[at].desire(value);
        }
    }

    /// The earliest of its timers.
    pub(crate) fn find_due(&self) -> Instant {
        let look = if self.look == Instant::ZERO { Instant::NEVER } else { self.look };
        let threads = self.threads.iter().map(Thread::due).min().unwrap_or(Instant::NEVER);
        let rhythm = self.rhythms.as_ref().map_or(Instant::NEVER, |rhythms| rhythms.due());
        threads.min(look).min(rhythm).min(self.elect_at).min(self.rest.due())
    }

    /// The thread whose jobs govern the budget.
    pub(crate) fn lead(&self) -> Option<ThreadId> {
        self.lead
    }

    /// Whether every thread is back under its former scheduler, as far as the mechanism obeys.
    pub(crate) fn is_restored(&self) -> bool {
        self.threads.iter().all(|t| t.wait == Wait::Denied || (t.applied.is_none() && t.wait == Wait::No))
    }

    /// The grant that the application's ring shows.
    pub(crate) fn grant(&self) -> Grant {
        let lead = self.threads.iter().find(|t| Some(t.id) == self.lead);
        let reservation = lead.and_then(|t| t.applied).map(|value| value.reservation);
        let controller = lead.and_then(|t| t.governor.controller());
        let predicted = controller.and_then(TaskController::prediction);
        Grant {
            budget: reservation.map_or(Nanos::ZERO, Reservation::budget),
            period: reservation.map_or(Nanos::ZERO, Reservation::period),
            error_ns: controller.map_or(0, TaskController::error_ns),
            jobs: self.meter.jobs(),
            overload: self.overload(),
            predicted: predicted.map_or(Nanos::ZERO, |interval| Nanos::from_f64(interval.centre())),
        }
    }

    /// Jobs that ended, and the number of misses among them.
    pub(crate) fn jobs(&self) -> (u64, u64) {
        (self.meter.jobs(), self.meter.misses())
    }

    /// CPU time divided by the elapsed time: of all threads if they are observed from outside, otherwise of the
    /// marked jobs. The costs of marked jobs are reported by the application, so the result is bounded here.
    fn used(&self, now: Instant) -> Share {
        let (used, time) = match self.ran_since {
            Some(since) => (self.ran, now.since(since)),
            None => (self.cost, self.time),
        };
        if time == Nanos::ZERO { Share::ZERO } else { Share::of_budget(used, time).min(Share::MAX) }
    }

    /// The achieved quality, with the reservations of all its threads together.
    fn quality(&self, now: Instant) -> Quality {
        let (mean_bandwidth, sd_bandwidth) = self.reserved.mean_and_sd(now);
        Quality { mean_bandwidth, sd_bandwidth, ..self.meter.quality(&self.contract.name) }
    }

    fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.threads.iter().filter(|t| t.applied.is_some()).filter_map(|t| t.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// The best levels of its metrics for its grant.
    fn utility(&self) -> Option<UtilityStatus> {
        Some(crate::utility::status(self.contract.utility.as_ref()?, self.utility.as_ref()?, self.granted))
    }

    /// Its state, without the profile of its contract: the client that requested the contract has the profile, and a
    /// copy for each reader would cost the control thread more than all else. So the contract shown must never be put
    /// in force: it would lose the profile.
    pub(crate) fn application(&self, now: Instant) -> Application {
        let status = |t: &Thread| ThreadStatus { tid: t.id, reservation: t.applied.map(|value| value.reservation) };
        Application {
            id: self.id,
            pid: self.pid,
            owner: self.owner,
            contract: self.contract.without_profile(),
            guaranteed: self.guarantee.share,
            invariance: self.guarantee.invariance,
            wanted: self.unlimited(),
            granted: self.granted,
            overload: self.overload(),
            utility: self.utility(),
            rhythm: self.rhythm(),
            threads: self.threads.iter().map(status).collect(),
            quality: self.quality(now),
            used: self.used(now),
            reserved: self.reserved.so_far(now),
            server: None,
            cpus: self.cpus(),
            memory: None,
            bandwidth: Vec::new(),
            energy: None,
        }
    }
}

/// The bandwidth B in CPUs; 0 without a reservation.
fn bandwidth(granted: Option<Reservation>) -> f64 {
    granted.map_or(0.0, |r| r.budget().as_f64() / r.period().as_f64())
}

/// A static server as requested, or none; the `first` one is shortened to what is `left`.
fn whole(wanted: Share, left: Share, first: bool) -> Share {
    if wanted <= left || first { wanted.min(left) } else { Share::ZERO }
}

/// `part · granted / sum`, rounded down.
fn fraction(part: Share, granted: Share, sum: Share) -> Share {
    Share::from_ppm((u64::from(part.ppm()) * u64::from(granted.ppm()) / u64::from(sum.ppm().max(1))) as u32)
}
