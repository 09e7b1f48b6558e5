//! One application: its contract, its threads and their governors, and how its grant is split among them.
//!
//! **Which thread gets which governor.** The *lead* thread does the jobs: the covered thread, or a program's
//! main thread until another one is seen to work half as much again. It is governed by its jobs, the other
//! threads by their consumption. Under `JobSource::Consumption` all are governed by consumption.
//! **Splitting.** Every thread gets what its governor wants while the grant covers that; otherwise all get
//! the same fraction of it. A thread whose part is below what the kernel accepts goes without a reservation.
//! **A static reservation** has no controller. Where the mechanism has servers for several threads it is one server:
//! each thread is told the same, and the first of them counts for all. Elsewhere a fixed share is a server per thread:
//! the oldest threads get theirs first, and only whole ones, since a part of a hard budget is worse than none.

mod overload;
mod reserved;
pub(crate) mod rest;
mod terms;

use qfabric_control::TaskController;
use qfabric_control::guarantee::{self, Guarantee, NoGuarantee};
use qfabric_types::api::{Application, Covers, FoundRhythm, ThreadStatus};
use qfabric_types::ring::Grant;
use qfabric_types::{
    AppId, Contract, Instant, JobRecord, JobSource, Nanos, Owner, Quality, QualityMeter, Reclaiming, Reservation,
    Sample, Share, ThreadId, Usage,
};

use self::overload::Shortage;
use self::reserved::OverTime;
use self::rest::Rest;
use crate::consumption::Consumption;
use crate::found::Found;
use crate::rhythm::{News, Rhythms, rhythms_for};
use crate::thread::{Governor, Thread, Wait, millionths};

/// The decision for a job is made this long before its release, or one server period where that is shorter.
const LEAD: Nanos = Nanos::from_millis(2);
/// What a thread at rest keeps where there are few: enough to show within it that it wants more, or, where it
/// reclaims, to be seen to wait.
const FLOOR_HARD: Share = Share::from_ppm(5_000);
const FLOOR_RECLAIMING: Share = Share::from_ppm(1_000);
/// Periods between two elections of the lead thread.
const ELECTION: u64 = 16;

/// One application.
pub(crate) struct App {
    pub id: AppId,
    pub pid: i32,
    pub owner: Owner,
    pub covers: Covers,
    pub contract: Contract,
    pub guarantee: Guarantee,
    pub threads: Vec<Thread>,
    lead: Option<ThreadId>,
    elect_at: Instant,
    /// What the supervisor was told and what it granted.
    pub wanted: Share,
    pub granted: Share,
    /// When the daemon has to look at its ring; ZERO: it is to be woken.
    pub look: Instant,
    /// Being put back: it ends when every thread is.
    pub leaving: bool,
    /// The mechanism in force cannot give what its contract asks for: it gets nothing.
    pub suspended: bool,
    /// The mechanism in force has servers for several threads.
    pub joint: bool,
    /// The mechanism in force lends to it, and few others compete for that.
    pub lent: bool,
    /// Got less than it wants, and that was told; when that last changed.
    pub saturated: bool,
    pub told_at: Instant,
    /// Threads left out because it has too many.
    pub left_out: u64,
    /// Looks for its period, where the contract leaves that to the host.
    rhythms: Option<Box<Rhythms>>,
    /// No timer of its is due before.
    pub due: Instant,
    rest: Rest,
    shortage: Shortage,
    /// What it needs, as the host has counted it in its sum.
    pub counted: Share,
    meter: QualityMeter,
    /// Reserved for all its threads together.
    reserved: OverTime,
    /// CPU time of all its threads that was seen from outside, and since when.
    ran: Nanos,
    ran_since: Option<Instant>,
    cost: Nanos,
    time: Nanos,
}

/// lead = min(P, 2 ms).
pub(crate) fn lead(contract: &Contract) -> Nanos {
    LEAD.min(contract.server_period)
}

/// What is guaranteed under `contract`: a static server, less what its window lets pass; of a fixed share, more where
/// the contract says so, for further threads. With feedback, what its class promises (AQuoSA §4.4).
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
        covers: Covers,
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
            threads: Vec::new(),
            lead: None,
            elect_at: Instant::NEVER,
            wanted: Share::ZERO,
            granted: Share::ZERO,
            look: Instant::ZERO,
            leaving: false,
            suspended: false,
            joint,
            lent: false,
            saturated: false,
            told_at: Instant::ZERO,
            left_out: 0,
            rhythms: rhythms_for(jobs),
            due: Instant::NEVER,
            rest: Rest::never(),
            shortage: Shortage::default(),
            counted: Share::ZERO,
            meter,
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

    /// Takes a thread in. The first one leads, until the program's main thread comes.
    pub(crate) fn add(&mut self, thread: ThreadId) {
        self.take_in(thread, |governor| Thread::new(thread, governor));
    }

    /// Takes in a thread that was another application's, with what it holds.
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

    /// Forgets a thread; another one leads where it did.
    pub(crate) fn remove(&mut self, at: usize) -> Thread {
        let thread = self.threads.remove(at);
        if self.lead == Some(thread.id) {
            self.lead = self.threads.iter().max_by_key(|t| t.used).map(|t| t.id);
            // Governed by consumption, a thread is governed alike whether it leads or not: it does not begin anew, asking for
            // all there is.
            if let Some(lead) = self.lead.filter(|_| self.source() != JobSource::Consumption) {
                self.govern(lead, true);
            }
        }
        thread
    }

    /// How the ends of its jobs become known now.
    fn source(&self) -> JobSource {
        match (self.contract.jobs, self.rhythm()) {
            (JobSource::Auto, Some(_)) => JobSource::Activations,
            (JobSource::Auto, None) => JobSource::Consumption,
            (source, _) => source,
        }
    }

    /// The period that was found and is in force.
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

    /// Another contract is in force. Controllers keep what they learned where the kind of jobs stays.
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
            self.begin_rest(job.release, now);
            let look = job.release + self.contract.period + self.contract.period - lead(&self.contract);
            // The daemon hears at once of the end of a job that gives back.
            self.look = if look > now && !self.gives_back() { look } else { Instant::ZERO };
            // Later than before as a rule: an outdated timer would fire once per application and period.
            self.due = self.find_due();
        }
    }

    /// Something became known of the job that begins.
    pub(crate) fn on_begin(&mut self, known: qfabric_types::Foresight) {
        self.end_rest();
        for thread in &mut self.threads {
            if let Governor::Marked(controller) = &mut thread.governor {
                controller.on_foresight(known);
            }
        }
    }

    /// A thread was seen on a CPU.
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

    /// Time has passed: governors close what is due. Answers whether anybody may want something else now.
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

    /// Looks whether the program has a rhythm, where its contract asks for that. What was counted without jobs, or
    /// with those of another period, is counted no longer.
    pub(crate) fn look_for_rhythm(&mut self, now: Instant) -> Option<News> {
        let news = self.rhythms.as_mut()?.on_time(now)?;
        let Contract { period, early, late, .. } = self.contract;
        self.meter = QualityMeter::new(period, early, late);
        (self.cost, self.time) = (Nanos::ZERO, Nanos::ZERO);
        Some(news)
    }

    /// What was found cannot be put in force.
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
        let missed = job.finish > controller.deadline(job.release);
        self.meter.count(controller.error_ns() as f64, bandwidth(granted), missed, Some(job.finish));
        if let Governor::Activations(_, found) = &mut thread.governor {
            found.count(missed);
        }
        self.compare(foreseen, job.cost);
        self.cost += job.cost;
        self.time += self.contract.period;
    }

    /// What its threads hold together is another sum from `now` on.
    pub(crate) fn note_reserved(&mut self, now: Instant) {
        let held: u64 = self.threads.iter().map(|thread| millionths(thread.applied)).sum();
        self.reserved.set(held as f64 / 1e6, now);
    }

    /// A lead starts with all the contract allows, and is looked at only once it runs. One that sleeps while others work
    /// (the main thread of a program that is reserved while it runs) keeps nothing for that.
    fn rest_idle_lead(&mut self) {
        let Some(lead) = self.lead else { return };
        let is_idle = |thread: &Thread| matches!(&thread.governor, Governor::Consumption(c) if c.is_untried());
        if self.find(lead).is_some_and(|at| is_idle(&self.threads[at])) {
            self.govern(lead, false);
        }
    }

    /// The busiest thread leads from now on, where it does half as much again as the one that leads.
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
                // Governed by consumption, a thread is governed alike whether it leads or not.
                if self.source() != JobSource::Consumption {
                    self.govern(old, false);
                    self.govern(new, true);
                }
                true
            }
            _ => false,
        }
    }

    /// Asks every governor once what its thread needs and wants now.
    pub(crate) fn weigh(&mut self) {
        for at in 0..self.threads.len() {
            self.threads[at].needs = self.needed_by(&self.threads[at]);
            self.threads[at].wants = self.wanted_by(&self.threads[at]);
        }
    }

    /// What its governors want together, as weighed; nothing while it leaves.
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
        self.asks(self.mean_of(thread).map_or(thread.needs, |mean| mean.min(thread.needs)))
    }

    /// The mean it consumes, where that is enough: the kernel lends it the rest of what its jobs take.
    fn mean_of(&self, thread: &Thread) -> Option<Share> {
        let lent = self.lent && !thread.rescued;
        let Governor::Activations(_, found) = &thread.governor else { return None };
        let mean = lent.then(|| found.mean(self.floor()))??;
        Some(Share::of_budget(mean, self.contract.server_period))
    }

    /// What its controllers find that its jobs need, as weighed, whatever its share is: all it may have where they predict
    /// nothing yet; nothing while it leaves.
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

    /// What a thread at rest keeps, and all threads together no more than a quarter of the maximum bandwidth.
    fn floor(&self) -> Nanos {
        let quarter = self.contract.max_bandwidth.ppm() / 4;
        let most = if self.contract.reclaiming == Reclaiming::Hard { FLOOR_HARD } else { FLOOR_RECLAIMING };
        let share = Share::from_ppm((quarter / self.threads.len().max(1) as u32).min(most.ppm()));
        share.budget_in(self.contract.server_period)
    }

    /// Splits what is granted among the threads, by what they want as weighed.
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

    /// The thread whose jobs are governed.
    pub(crate) fn lead(&self) -> Option<ThreadId> {
        self.lead
    }

    /// Whether every thread is back under its own scheduler, as far as the mechanism obeys.
    pub(crate) fn is_restored(&self) -> bool {
        self.threads.iter().all(|t| t.wait == Wait::Denied || (t.applied.is_none() && t.wait == Wait::No))
    }

    /// What is shown to the application through its ring.
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

    /// Jobs that ended, and of them those after their deadline.
    pub(crate) fn jobs(&self) -> (u64, u64) {
        (self.meter.jobs(), self.meter.misses())
    }

    /// CPU time over the time it had: of all threads where they are seen from outside, else of its marked jobs. Costs
    /// of those are an application's own word, so the answer is bounded here.
    fn used(&self, now: Instant) -> Share {
        let (used, time) = match self.ran_since {
            Some(since) => (self.ran, now.since(since)),
            None => (self.cost, self.time),
        };
        if time == Nanos::ZERO { Share::ZERO } else { Share::of_budget(used, time).min(Share::MAX) }
    }

    /// What it achieved, with what was reserved for all its threads together.
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

    pub(crate) fn application(&self, now: Instant) -> Application {
        let status = |t: &Thread| ThreadStatus { tid: t.id, reservation: t.applied.map(|value| value.reservation) };
        Application {
            id: self.id,
            pid: self.pid,
            owner: self.owner,
            contract: self.contract.clone(),
            guaranteed: self.guarantee.share,
            invariance: self.guarantee.invariance,
            wanted: self.wanted,
            granted: self.granted,
            overload: self.overload(),
            rhythm: self.rhythm(),
            threads: self.threads.iter().map(status).collect(),
            quality: self.quality(now),
            used: self.used(now),
            reserved: self.reserved.so_far(now),
            server: None,
            cpus: self.cpus(),
        }
    }
}

/// B in CPUs; nothing without a reservation.
fn bandwidth(granted: Option<Reservation>) -> f64 {
    granted.map_or(0.0, |r| r.budget().as_f64() / r.period().as_f64())
}

/// A static server as it was asked for, or none; the `first` one is shortened to what is `left`.
fn whole(wanted: Share, left: Share, first: bool) -> Share {
    if wanted <= left || first { wanted.min(left) } else { Share::ZERO }
}

/// `part · granted / sum`, rounded down.
fn fraction(part: Share, granted: Share, sum: Share) -> Share {
    Share::from_ppm((u64::from(part.ppm()) * u64::from(granted.ppm()) / u64::from(sum.ppm().max(1))) as u32)
}
