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
//! more than SHORT times the foreseen cost, the next WARY_JOBS jobs request max(c, s).
//!
//! While the mean costs of all jobs fill the capacity, a job that cannot be in time even with all that its contract
//! allows is limited: it requests no more than s, so that what sleepers leave goes to jobs that can. It still counts as
//! short of what it needs. An application that has left out a job within its last SKIPPING_JOBS is not limited.
//!
//! ```text
//!             costs > FULL
//!   has room --------------> full
//!      ^---- costs <= ROOMY ---'
//! ```
//! Reasons: docs/design/0021.

use qfabric_control::TaskController;
use qfabric_types::{Contract, ControlPlace, Instant, JobRecord, JobSource, Nanos, Reclaiming, Share};

use super::{App, FLOOR_RECLAIMING, lead};
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
/// The host is full if the mean costs of all jobs exceed this percentage of the capacity …
const FULL_PERCENT: u64 = 95;
/// … until they are at or below this one.
const ROOMY_PERCENT: u64 = 90;
/// Each job has this part, 1/24, in the mean cost.
const MEAN_JOBS: u32 = 24;
/// A job that costs less than the mean divided by this was left out: its program ended it without doing the work.
const LEFT_OUT: u32 = 16;
/// Number of jobs for which an application counts as one that skips, after it has left out a job.
const SKIPPING_JOBS: u32 = 64;
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
    /// The mean costs of all jobs fill the capacity of the host.
    full: bool,
    /// Mean of cost over period of its last jobs, however late they were; `None` before the first one.
    mean: Option<Share>,
    /// Its next job cannot be in time, even with all that the contract allows.
    hopeless: bool,
    /// Number after that of the job that ended last.
    next_job: u64,
    /// Remaining jobs for which it counts as one that skips: which job it does next is not known.
    skipping: u32,
}

impl Rest {
    pub(super) const fn never() -> Self {
        Rest {
            able: false,
            share: Share::ZERO,
            until: Instant::NEVER,
            attempts: 0,
            wary: 0,
            full: false,
            mean: None,
            hopeless: false,
            next_job: 0,
            skipping: 0,
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

/// Whether the mean costs of all jobs fill the capacity, if they did `before` or not. Both in millionths of one CPU.
pub(crate) fn is_full(before: bool, costs: u64, capacity: u64) -> bool {
    costs * 100 > capacity * if before { ROOMY_PERCENT } else { FULL_PERCENT }
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

    /// Notes whether the mean costs of all jobs fill the capacity of the host. Its request changes only if it is late.
    pub(crate) fn set_full(&mut self, full: bool) {
        self.rest.full = full;
    }

    /// Whether its next job cannot be in time, so that its request depends on whether the host is full.
    pub(crate) fn is_late(&self) -> bool {
        self.rest.hopeless && self.gives_back()
    }

    /// Its request, or its needs while it is limited to its share: with less it is short.
    pub(crate) fn unlimited(&self) -> Share {
        let is_limited = self.rest.full && self.is_late() && !self.is_resting();
        if is_limited { self.wanted.max(self.needs()) } else { self.wanted }
    }

    /// The bandwidth that its jobs cost in the mean: a backlog does not raise it. Its needs if it cannot give back, and
    /// before its first job.
    pub(crate) fn costs(&self) -> Share {
        let needs = self.needs();
        self.rest.mean.filter(|_| needs > Share::ZERO && self.may_give_back()).unwrap_or(needs)
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.rest.until != Instant::NEVER
    }

    /// A job released at `release` has ended: rests until shortly before the next release.
    pub(super) fn begin_rest(&mut self, release: Instant, now: Instant) {
        let ask = release + self.contract.period - lead(&self.contract);
        let worth = self.gives_back() && ask > now + SHORTEST_REST;
        (self.rest.until, self.rest.attempts) = (if worth { ask } else { Instant::NEVER }, 0);
    }

    /// A job of thread `at` has ended, and the controller has seen it: notes whether the next job can be in time.
    pub(super) fn judge_next(&mut self, at: usize, job: &JobRecord, now: Instant) {
        let cost = Share::of_budget(job.cost, self.contract.period);
        self.rest.skipping =
            if self.left_out(job, cost) { SKIPPING_JOBS } else { self.rest.skipping.saturating_sub(1) };
        self.rest.next_job = job.k.saturating_add(1);
        self.rest.mean = Some(self.rest.mean.map_or(cost, |mean| approach(mean, cost)));
        let release = job.release + self.contract.period;
        // The prediction is worth its time only where the judgement has an effect.
        self.rest.hopeless =
            self.may_give_back() && self.rest.skipping == 0 && self.cannot_be_in_time(at, release, now);
    }

    /// Whether this job, or one between it and the job before, was left out. Programs skip in both ways: they leave a gap
    /// in the numbers of their jobs (`Session::skip`), or end the job at once.
    fn left_out(&self, job: &JobRecord, cost: Share) -> bool {
        let is_gap = self.rest.next_job > 0 && job.k > self.rest.next_job;
        is_gap || self.rest.mean.is_some_and(|mean| cost.ppm() < mean.ppm() / LEFT_OUT)
    }

    /// Whether a job of thread `at` that is released at `release` cannot end by its deadline, or as late as the
    /// contract tolerates, even with all that the contract allows one thread from `now` on. Without a prediction it
    /// can.
    fn cannot_be_in_time(&self, at: usize, release: Instant, now: Instant) -> bool {
        let Contract { period, late, max_bandwidth, .. } = self.contract;
        let costs = self.threads[at].governor.controller().and_then(TaskController::prediction);
        let latest = release + period + Nanos::from_f64(late * period.as_f64());
        let most = latest.since(now.max(release)).as_f64() * max_bandwidth.min(Share::ONE).as_f64();
        costs.is_some_and(|costs| costs.centre() > most)
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
        if !self.gives_back() {
            return wanted;
        }
        let Rest { share, wary, full, hopeless, .. } = self.rest;
        let running = if wary > 0 { wanted.max(share) } else { wanted };
        // An application of a lower level may have no share. With a reservation, however small, GRUB lends to it.
        let running = if full && hopeless { running.min(share.max(FLOOR_RECLAIMING)) } else { running };
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

/// The mean after a job of `cost`.
fn approach(mean: Share, cost: Share) -> Share {
    let sum = u64::from(mean.ppm()) * u64::from(MEAN_JOBS - 1) + u64::from(cost.ppm());
    Share::from_ppm((sum / u64::from(MEAN_JOBS)) as u32)
}

fn percent(share: Share, percent: u64) -> Share {
    Share::from_ppm((u64::from(share.ppm()) * percent / 100) as u32)
}

#[cfg(test)]
mod tests {
    use super::is_full;

    #[test]
    fn costs_above_95_percent_of_the_capacity_fill_it_until_they_are_at_90_percent() {
        let mut full = false;
        let sums = [(950, false), (951, true), (940, true), (901, true), (900, false), (950, false), (1_100, true)];
        for (costs, expected) in sums {
            full = is_full(full, costs, 1_000);
            assert_eq!(full, expected, "{costs}");
        }
    }
}
