//! Giving back between jobs: a sleeping thread keeps only a part of its share, and takes the rest back before its
//! next job.
//!
//! ```text
//!            job ended, next request more than SHORTEST_REST away
//!   running ----------------------------------------------> resting
//!   requests c                                              requests KEPT·s
//!      ^---- lead before the release, or a job begins ---------'
//! ```
//! c is what the controller wants, s is the application's share of the capacity by weight. After a job that cost
//! more than SHORT times the foreseen cost, the next WARY_JOBS jobs request max(c, s). [`Allocation`] changes these
//! requests. Reasons: docs/design/0021.

use qfabric_control::TaskController;
use qfabric_types::{Contract, ControlPlace, Instant, JobRecord, JobSource, Nanos, Reclaiming, Share};

use super::{App, FLOOR_RECLAIMING};
use crate::allocation::{Allocation, Load, Mean, Measure};
use crate::thread::Governor;

/// Percentage of its share that a sleeping thread keeps: with less, more misses where CPU time is stolen; with more, more
/// misses in calm cells, and more is reserved.
const KEPT_PERCENT: u64 = 30;
/// A prediction is far too low if the job costs more than this percentage of it.
const SHORT_PERCENT: u64 = 130;
/// Number of jobs for which predictions are not relied on after one that was far too low.
const WARY_JOBS: u32 = 24;
/// Shorter rests are not worth the wake-ups of the control thread.
const SHORTEST_REST: Nanos = Nanos::from_millis(8);
/// Rest that must remain after an attempt that found the thread awake, or no further one is made.
const LEAST: Nanos = Nanos::from_millis(1);
/// Jobs with a shorter period are not worth a wake-up of the daemon each.
const SHORTEST_PERIOD: Nanos = Nanos::from_millis(10);
/// With more of such jobs per second on the host, no application gives back: each costs the daemon two or three wake-ups,
/// two or three settings and reads of `/proc`, together up to 200 µs, and its control thread has 0.05 CPU.
const MOST_JOBS_PER_SECOND: u64 = 240;
/// Pause after the first attempt that found the thread awake; doubled after each further one.
const FIRST_RETRY: Nanos = Nanos::from_micros(500);

/// The rest of an application between jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    /// Whether the mechanism in force can decrease the reservation of a sleeping thread.
    able: bool,
    /// s: the share that it would hold if all applications requested their largest bandwidth.
    share: Share,
    /// When it takes back what it gave; [`Instant::NEVER`] while it runs.
    until: Instant,
    /// Attempts in this rest that found the thread awake.
    attempts: u32,
    /// Remaining jobs for which predictions are not relied on.
    wary: u32,
    rules: Allocation,
    /// The present load of the host.
    load: Load,
    /// Mean load of its last jobs, by the measure of the rules.
    mean: Mean,
    /// Its next job cannot be in time, even with all that the contract allows.
    hopeless: bool,
    /// Number after that of the job that ended last.
    next_job: u64,
    /// It has left out jobs, so its next job is not known.
    skips: bool,
}

impl Rest {
    pub(super) const fn never() -> Self {
        Rest {
            able: false,
            share: Share::ZERO,
            until: Instant::NEVER,
            attempts: 0,
            wary: 0,
            rules: Allocation::DEFAULT,
            load: Load { full: false, hold: false },
            mean: Mean::NONE,
            hopeless: false,
            next_job: 0,
            skips: false,
        }
    }

    pub(super) fn due(self) -> Instant {
        self.until
    }
}

/// Whether the contract allows giving back: marked jobs that are not too short, under GRUB and feedback.
fn allows(contract: &Contract) -> bool {
    contract.give_back
        && contract.reclaiming == Reclaiming::Grub
        && contract.jobs == JobSource::Marked
        && contract.controller == ControlPlace::User
        && contract.service.is_none()
        && contract.fixed.is_none()
        && contract.period >= SHORTEST_PERIOD
}

/// Whether the daemon has the time for all applications that may give back.
pub(crate) fn is_affordable(apps: &[App]) -> bool {
    let rate = |app: &App| 1_000_000_000 / app.contract.period.get().max(1);
    apps.iter().filter(|app| app.may_give_back()).map(rate).sum::<u64>() <= MOST_JOBS_PER_SECOND
}

impl App {
    /// Whether its thread gives back between jobs.
    pub(crate) fn gives_back(&self) -> bool {
        self.rest.able && self.may_give_back()
    }

    /// Whether it would give back if the mechanism and the daemon's time allow.
    pub(crate) fn may_give_back(&self) -> bool {
        let marked = matches!(self.threads.as_slice(), [only] if matches!(only.governor, Governor::Marked(_)));
        !self.leaving && marked && allows(&self.contract)
    }

    /// Updates its share of the capacity and the ability of the mechanism.
    pub(crate) fn set_share(&mut self, able: bool, share: Share) {
        (self.rest.able, self.rest.share) = (able, share);
        if !self.gives_back() {
            self.rest.until = Instant::NEVER;
        }
    }

    /// Applies these rules from now on.
    pub(crate) fn set_rules(&mut self, rules: Allocation) {
        self.rest.rules = rules;
    }

    /// Follows the load of the host. While all hold their shares, none rests.
    pub(crate) fn set_load(&mut self, load: Load) {
        self.rest.load = load;
        if load.hold {
            self.rest.until = Instant::NEVER;
        }
    }

    /// Whether it holds its share, no more and no less, whatever its controller requests.
    pub(crate) fn holds_share(&self) -> bool {
        self.rest.load.hold && self.may_give_back()
    }

    /// Its part of the host's load, in millionths of one CPU: the mean of its last jobs, or its needs if it has no such
    /// jobs.
    pub(crate) fn mean_load(&self) -> u64 {
        let needs = self.needs();
        if needs > Share::ZERO && self.may_give_back() { self.rest.mean.ppm() } else { needs.ppm().into() }
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.rest.until != Instant::NEVER
    }

    /// A job released at `release` has ended: rests until shortly before the next release.
    pub(super) fn begin_rest(&mut self, release: Instant, now: Instant) {
        let ask = release + self.contract.period - self.rest.rules.lead.min(self.contract.server_period);
        let worth = self.gives_back() && !self.holds_share() && ask > now + SHORTEST_REST;
        (self.rest.until, self.rest.attempts) = (if worth { ask } else { Instant::NEVER }, 0);
    }

    /// Notes the load of a job of thread `at` that ended, and whether the next job can be in time. The controller has
    /// seen the job already.
    pub(super) fn note_end(&mut self, at: usize, job: &JobRecord, now: Instant) {
        let load = match self.rest.rules.overload {
            Some(Measure::Costs) => Share::of_budget(job.cost, self.contract.period).min(self.contract.max_bandwidth),
            Some(Measure::Requests) => self.needed_by(&self.threads[at]),
            None => Share::ZERO,
        };
        self.rest.mean.add(load);
        self.rest.skips |= self.rest.next_job > 0 && job.k > self.rest.next_job;
        self.rest.next_job = job.k.saturating_add(1);
        let judged = self.rest.rules.in_time && !self.rest.skips;
        self.rest.hopeless = judged && self.cannot_be_in_time(at, job.release + self.contract.period, now);
    }

    /// Whether a job of thread `at` that is released at `release` cannot end by its deadline, even with all that the
    /// contract allows from `now` on. Without a prediction it can.
    fn cannot_be_in_time(&self, at: usize, release: Instant, now: Instant) -> bool {
        let costs = self.threads[at].governor.controller().and_then(TaskController::prediction);
        let left = (release + self.contract.period).since(now.max(release));
        costs.is_some_and(|costs| costs.centre() > left.as_f64() * self.contract.max_bandwidth.as_f64())
    }

    /// Compares the cost of a job with the largest cost that its controller had foreseen.
    pub(super) fn compare(&mut self, foreseen: Nanos, cost: Nanos) {
        let short = u128::from(cost.get()) * 100 > u128::from(foreseen.get()) * u128::from(SHORT_PERCENT);
        self.rest.wary = if short { WARY_JOBS } else { self.rest.wary.saturating_sub(1) };
    }

    pub(super) fn end_rest(&mut self) {
        self.rest.until = Instant::NEVER;
    }

    /// The request of its thread if its controller wants `wanted`.
    pub(super) fn request(&self, wanted: Share) -> Share {
        let Rest { share, rules, load, wary, hopeless, .. } = self.rest;
        if self.holds_share() {
            return share.max(FLOOR_RECLAIMING);
        }
        if !self.gives_back() {
            return wanted;
        }
        let has_floor = wary > 0 || (rules.floor && load.full);
        let running = if has_floor { wanted.max(share) } else { wanted };
        let running = if rules.in_time && load.full && hopeless { running.min(share) } else { running };
        match self.is_resting() {
            true => percent(share, KEPT_PERCENT).max(FLOOR_RECLAIMING).min(running),
            false => running,
        }
    }

    /// The thread was awake: when to try again; not if taking back comes first.
    pub(crate) fn retry_rest(&mut self, now: Instant) -> Instant {
        let pause = FIRST_RETRY.saturating_mul(1 << self.rest.attempts.min(10));
        self.rest.attempts += 1;
        let again = now + pause;
        if again + LEAST < self.rest.until { again } else { Instant::NEVER }
    }
}

fn percent(share: Share, percent: u64) -> Share {
    Share::from_ppm((u64::from(share.ppm()) * percent / 100) as u32)
}
