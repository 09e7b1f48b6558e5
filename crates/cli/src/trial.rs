//! What a trial execution shows: the stretches every thread ran, folded into jobs. Times in nanoseconds.
//!
//! Approach: note every activation (what a thread ran between two sleeps) with its start; at the end take the
//! busiest thread, find its period where none was given, and take all activations of one period as one job.
//! Source: AQuoSA §5.5 (trial execution); QualMan §6.4 (probing). Pure: tested without a program.

use std::collections::BTreeMap;

use qfabric_control::trial::period_of;
use qfabric_types::{Instant, Nanos, Profile, Share, ThreadId};

/// Activations kept per thread: a day of 10 Hz, or the first seven minutes of a thread that sleeps every 2 ms.
const MAX_ACTIVATIONS: usize = 200_000;
/// The first jobs load and warm up: they say little of the rest. At most so many, and a tenth, are left out.
const START_UP_JOBS: usize = 10;

/// What all threads did so far.
#[derive(Debug, Default)]
pub struct Trial {
    threads: BTreeMap<ThreadId, Thread>,
    begin: Option<Instant>,
    end: Instant,
}

#[derive(Debug, Default)]
struct Thread {
    used: Nanos,
    activations: Vec<Activation>,
    /// Its last stretch ended by preemption, so that the next one goes on with the same activation.
    awake: bool,
}

impl Thread {
    fn ran(&mut self, from: Instant, used: Nanos, slept: bool) {
        self.used += used;
        let has_room = self.activations.len() < MAX_ACTIVATIONS;
        match self.activations.last_mut() {
            Some(open) if self.awake => open.used += used,
            _ if has_room => self.activations.push(Activation { start: from, used }),
            _ => {}
        }
        self.awake = !slept;
    }
}

#[derive(Clone, Copy, Debug)]
struct Activation {
    start: Instant,
    used: Nanos,
}

/// What the trial came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// T, given or found; none where the program has no rhythm.
    pub period: Option<Nanos>,
    /// Costs of the jobs of the busiest thread; empty without a period.
    pub profile: Profile,
    /// Threads seen.
    pub threads: usize,
    /// Mean of the whole program, over the time it ran.
    pub mean: Share,
    /// Most of the whole program within one period.
    pub peak: Share,
}

impl Trial {
    /// A stretch that a thread ran.
    pub fn ran(&mut self, thread: ThreadId, from: Instant, to: Instant, used: Nanos, slept: bool) {
        self.begin = Some(self.begin.map_or(from, |begin| begin.min(from)));
        self.end = self.end.max(to);
        let thread = self.threads.entry(thread).or_default();
        thread.ran(from, used, slept);
    }

    /// What it came to, with the period where it is known.
    pub fn found(&self, known: Option<Nanos>) -> Found {
        let busiest = self.threads.values().max_by_key(|thread| thread.used);
        let activations = busiest.map_or(&[][..], |thread| &thread.activations);
        let period = known.or_else(|| period_of(&starts(activations)));
        let mut jobs = period.map(|period| jobs(activations, period)).unwrap_or_default();
        jobs.drain(..START_UP_JOBS.min(jobs.len() / 10));
        let settled = jobs.first().map_or(Instant::ZERO, |job| job.start);
        let costs = jobs.iter().map(|job| job.used).collect();
        Found {
            period,
            profile: Profile { costs: latest(costs), hints: Vec::new() },
            threads: self.threads.len(),
            mean: self.mean(),
            peak: self.peak(settled, period.unwrap_or(Nanos::from_millis(100))),
        }
    }

    fn mean(&self) -> Share {
        let used: Nanos = self.threads.values().fold(Nanos::ZERO, |sum, thread| sum + thread.used);
        let time = self.end.since(self.begin.unwrap_or(self.end));
        if time == Nanos::ZERO { Share::ZERO } else { Share::of_budget(used, time) }
    }

    /// An activation counts where it starts: a long one is one job, however many windows it fills.
    fn peak(&self, settled: Instant, window: Nanos) -> Share {
        let all = self.threads.values().flat_map(|thread| &thread.activations);
        let mut windows: BTreeMap<u64, Nanos> = BTreeMap::new();
        for activation in all.filter(|activation| activation.start >= settled) {
            *windows.entry(activation.start.since(settled).get() / window.get()).or_default() += activation.used;
        }
        Share::of_budget(windows.into_values().max().unwrap_or_default(), window)
    }
}

fn starts(activations: &[Activation]) -> Vec<Instant> {
    activations.iter().map(|activation| activation.start).collect()
}

/// Jobs before these are forgotten: the start of a program says less of its steady state.
fn latest(mut costs: Vec<Nanos>) -> Vec<Nanos> {
    costs.split_off(costs.len().saturating_sub(Profile::MAX_JOBS))
}

/// One job per period in which the thread was active. A new job begins no earlier than a quarter before its
/// expected release; the grid follows the activations by an eighth of the distance, since clocks drift.
fn jobs(activations: &[Activation], period: Nanos) -> Vec<Activation> {
    let Some(first) = activations.first() else { return Vec::new() };
    let (mut release, mut job) = (first.start, Activation { used: Nanos::ZERO, ..*first });
    let early = Nanos::new(period.get() / 4);
    let mut jobs = Vec::new();
    for activation in activations {
        if activation.start >= release + (period - early) {
            jobs.push(std::mem::replace(&mut job, Activation { used: Nanos::ZERO, ..*activation }));
            let periods = (activation.start.since(release).as_f64() / period.as_f64()).round().max(1.0) as u64;
            release = nudged(release + period.saturating_mul(periods), activation.start);
        }
        job.used += activation.used;
    }
    jobs.push(job);
    jobs
}

fn nudged(expected: Instant, seen: Instant) -> Instant {
    let by = seen.signed_since(expected) / 8;
    if by >= 0 { expected + Nanos::new(by as u64) } else { expected - Nanos::new(by.unsigned_abs()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A decoder: every 40 ms some work in two parts around a short sleep, and a helper thread.
    fn decoder(drift_ns: u64) -> Trial {
        let mut trial = Trial::default();
        for k in 0..100 {
            let at = |ms: u64| Instant::new(k * (40 * MS + drift_ns) + ms * MS);
            let work = if k % 4 == 0 { 8 } else { 4 };
            trial.ran(ThreadId(1), at(0), at(2), Nanos::from_millis(2), false); // preempted
            trial.ran(ThreadId(1), at(5), at(6), Nanos::from_millis(1), true);
            trial.ran(ThreadId(1), at(9), at(9 + work), Nanos::from_millis(work), true);
            trial.ran(ThreadId(2), at(20), at(21), Nanos::from_millis(1), true);
        }
        trial
    }

    #[test]
    fn all_activations_of_a_period_are_one_job() {
        let found = decoder(0).found(Some(Nanos::from_millis(40)));
        assert_eq!(found.profile.costs.len(), 90);
        assert_eq!(found.profile.costs[..3], [7, 7, 11].map(Nanos::from_millis));
        assert_eq!(found.threads, 2);
        assert_eq!(found.peak, Share::from_f64(12.0 / 40.0));
        assert!((found.mean.as_f64() - 9.0 / 40.0).abs() < 0.01, "{}", found.mean);
    }

    #[test]
    fn a_drifting_clock_loses_no_job() {
        assert_eq!(decoder(MS / 10).found(Some(Nanos::from_millis(40))).profile.costs.len(), 90);
    }

    #[test]
    fn a_rhythm_is_found_where_there_is_one() {
        let mut trial = Trial::default();
        for k in 0..50 {
            let start = Instant::new(k * 20 * MS + (k % 3) * 100_000);
            trial.ran(ThreadId(1), start, start + Nanos::from_millis(3), Nanos::from_millis(3), true);
        }
        let period = trial.found(None).period.unwrap();
        assert!((period.as_f64() / 20e6 - 1.0).abs() < 0.02, "{period}");
        assert_eq!(trial.found(None).profile.costs.len(), 45);
    }

    #[test]
    fn no_rhythm_is_claimed_where_there_is_none() {
        let mut trial = Trial::default();
        for k in 0_u64..50 {
            let start = Instant::new(k * k * MS);
            trial.ran(ThreadId(1), start, start + Nanos::from_millis(1), Nanos::from_millis(1), true);
        }
        let found = trial.found(None);
        assert_eq!((found.period, found.profile.costs.len()), (None, 0));
        assert_eq!(Trial::default().found(None).mean, Share::ZERO);
    }

    #[test]
    fn a_long_profile_keeps_its_end() {
        let costs: Vec<_> = (0..5_000).map(Nanos::new).collect();
        assert_eq!(latest(costs).last(), Some(&Nanos::new(4_999)));
        assert_eq!(latest((0..5_000).map(Nanos::new).collect()).len(), Profile::MAX_JOBS);
    }
}
