//! Computes the jobs of a trial execution from the stretches of time in which each thread ran. Times in nanoseconds.
//!
//! Approach: record every stretch in which a thread ran. At the end join the stretches between two sleeps to an
//! activation, take the busiest thread, find its period if none is given, and join all activations of one period to one
//! job. The CPU time of the whole program is counted in the period in which it was used, stretch by stretch. Otherwise
//! a job longer than a period would count as more CPU time than the machine has.
//!
//! Source: AQuoSA §5.5 (trial execution); QualMan §6.4 (probing). Pure: tested without a program.

use std::collections::BTreeMap;

use qfabric_control::trial::period_of;
use qfabric_types::{Instant, Nanos, Profile, Sample, Share, ThreadId};

/// Stretches stored for each thread; later ones are not stored. Enough for five hours at 10 Hz, or for seven minutes of
/// a thread that sleeps every 2 ms.
const MAX_STRETCHES: usize = 200_000;
/// The first jobs load and warm up, so they differ from the later ones. At most this number, and at most a tenth of the
/// jobs, is left out.
const START_UP_JOBS: usize = 10;
/// Length of the window for the peak if no period is known.
const WINDOW: Nanos = Nanos::from_millis(100);

/// The recorded stretches of all threads.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    threads: BTreeMap<ThreadId, Thread>,
    begin: Option<Instant>,
    end: Instant,
}

#[derive(Debug, Default)]
struct Thread {
    used: Nanos,
    stretches: Vec<Sample>,
}

impl Thread {
    fn ran(&mut self, stretch: Sample) {
        self.used += stretch.used;
        let has_room = self.stretches.len() < MAX_STRETCHES;
        match self.stretches.last_mut() {
            // The kernel cut the stretch without switching threads: the thread continued to run.
            Some(open) if !open.slept && open.to == stretch.from => {
                (open.to, open.slept) = (stretch.to, stretch.slept);
                open.used += stretch.used;
            }
            _ if has_room => self.stretches.push(stretch),
            _ => {}
        }
    }

    fn activations(&self) -> Vec<Activation> {
        let mut activations: Vec<Activation> = Vec::new();
        let mut awake = false;
        for stretch in &self.stretches {
            match activations.last_mut() {
                Some(open) if awake => open.used += stretch.used,
                _ => activations.push(Activation { start: stretch.from, used: stretch.used }),
            }
            awake = !stretch.slept;
        }
        activations
    }
}

#[derive(Clone, Copy, Debug)]
struct Activation {
    start: Instant,
    used: Nanos,
}

/// The result of the trial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Findings {
    /// T, given or found; none: the program has no period.
    pub period: Option<Nanos>,
    /// Costs of the jobs of the busiest thread; empty without a period.
    pub profile: Profile,
    pub threads: usize,
    /// Time from the first stretch to the last.
    pub lasted: Nanos,
    /// Mean bandwidth of the whole program over the time from the first stretch to the last.
    pub mean: Share,
    /// Largest bandwidth of the whole program within one period.
    pub peak: Share,
}

impl Trial {
    /// Records a stretch in which a thread ran.
    pub(crate) fn ran(&mut self, stretch: Sample) {
        self.begin = Some(self.begin.map_or(stretch.from, |begin| begin.min(stretch.from)));
        self.end = self.end.max(stretch.to);
        self.threads.entry(stretch.thread).or_default().ran(stretch);
    }

    /// Computes the result. Looks for the period if `known` is none.
    pub(crate) fn found(&self, known: Option<Nanos>) -> Findings {
        let busiest = self.threads.values().max_by_key(|thread| thread.used);
        let activations = busiest.map_or(Vec::new(), Thread::activations);
        let period = known.or_else(|| period_of(&starts(&activations)));
        let mut jobs = period.map(|period| jobs(&activations, period)).unwrap_or_default();
        jobs.drain(..START_UP_JOBS.min(jobs.len() / 10));
        let settled = jobs.first().map(|job| job.start).or(self.begin).unwrap_or_default();
        let costs = jobs.iter().map(|job| job.used).collect();
        Findings {
            period,
            profile: Profile { costs: latest(costs), hints: Vec::new() },
            threads: self.threads.len(),
            lasted: self.lasted(),
            mean: self.mean(),
            peak: self.peak(settled, period.unwrap_or(WINDOW)),
        }
    }

    fn lasted(&self) -> Nanos {
        self.end.since(self.begin.unwrap_or(self.end))
    }

    fn mean(&self) -> Share {
        let used: Nanos = self.threads.values().fold(Nanos::ZERO, |sum, thread| sum + thread.used);
        if self.lasted() == Nanos::ZERO { Share::ZERO } else { Share::of_budget(used, self.lasted()) }
    }

    /// The largest bandwidth in a window. A trial shorter than `window` counts as one window.
    fn peak(&self, settled: Instant, window: Nanos) -> Share {
        let window = window.min(self.end.since(settled)).max(Nanos::new(1));
        let mut windows: BTreeMap<u64, f64> = BTreeMap::new();
        for stretch in self.threads.values().flat_map(|thread| &thread.stretches) {
            spread(stretch, settled, window, &mut windows);
        }
        let most = windows.into_values().fold(0.0, f64::max);
        Share::of_budget(Nanos::from_f64(most), window)
    }
}

/// Adds the CPU time of a stretch to the windows that it overlaps, evenly over its length.
fn spread(stretch: &Sample, settled: Instant, window: Nanos, windows: &mut BTreeMap<u64, f64>) {
    let whole = stretch.to.since(stretch.from).get().max(1);
    let (mut at, end) = (stretch.from.max(settled), stretch.to);
    while at < end {
        let number = at.since(settled).get() / window.get();
        let next = end.min(settled + window.saturating_mul(number + 1));
        let part = next.since(at).as_f64() / whole as f64;
        *windows.entry(number).or_default() += part * stretch.used.as_f64();
        at = next;
    }
}

fn starts(activations: &[Activation]) -> Vec<Instant> {
    activations.iter().map(|activation| activation.start).collect()
}

/// Keeps the last [`Profile::MAX_JOBS`] costs, because the first ones differ from the steady state.
fn latest(mut costs: Vec<Nanos>) -> Vec<Nanos> {
    costs.split_off(costs.len().saturating_sub(Profile::MAX_JOBS))
}

/// One job for each period in which the thread was active. A new job begins at the earliest a quarter of a period
/// before its expected release. The expected releases follow the activations by an eighth of the difference, because
/// clocks drift.
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

    fn sample(thread: i32, from: Instant, used: Nanos, slept: bool) -> Sample {
        Sample { thread: ThreadId(thread), from, to: from + used, used, slept }
    }

    /// A decoder: every 40 ms a job in two parts with a short sleep between them, and a helper thread.
    fn decoder(drift_ns: u64) -> Trial {
        let mut trial = Trial::default();
        for k in 0..100 {
            let at = |ms: u64| Instant::new(k * (40 * MS + drift_ns) + ms * MS);
            let work = if k % 4 == 0 { 8 } else { 4 };
            trial.ran(sample(1, at(0), Nanos::from_millis(2), false)); // preempted
            trial.ran(sample(1, at(5), Nanos::from_millis(1), true));
            trial.ran(sample(1, at(9), Nanos::from_millis(work), true));
            trial.ran(sample(2, at(20), Nanos::from_millis(1), true));
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
        assert_eq!(found.lasted, Nanos::from_millis(99 * 40 + 21));
        assert!((found.mean.as_f64() - 9.0 / 40.0).abs() < 0.01, "{}", found.mean);
    }

    #[test]
    fn a_drifting_clock_loses_no_job() {
        assert_eq!(decoder(MS / 10).found(Some(Nanos::from_millis(40))).profile.costs.len(), 90);
    }

    #[test]
    fn the_period_of_a_periodic_thread_is_found() {
        let mut trial = Trial::default();
        for k in 0..50 {
            let start = Instant::new(k * 20 * MS + (k % 3) * 100_000);
            trial.ran(sample(1, start, Nanos::from_millis(3), true));
        }
        let period = trial.found(None).period.unwrap();
        assert!((period.as_f64() / 20e6 - 1.0).abs() < 0.02, "{period}");
        assert_eq!(trial.found(None).profile.costs.len(), 45);
    }

    #[test]
    fn no_period_is_found_for_an_irregular_thread() {
        let mut trial = Trial::default();
        for k in 0_u64..50 {
            let start = Instant::new(k * k * MS);
            trial.ran(sample(1, start, Nanos::from_millis(1), true));
        }
        let found = trial.found(None);
        assert_eq!((found.period, found.profile.costs.len()), (None, 0));
        assert_eq!(Trial::default().found(None).mean, Share::ZERO);
    }

    /// Four threads that never sleep share two CPUs: the stretches are their turns.
    #[test]
    fn the_peak_of_threads_that_never_sleep_is_limited_by_the_cpus() {
        let mut trial = Trial::default();
        for k in 0..500 {
            for thread in 0..4_u64 {
                let from = Instant::new((2 * k + thread / 2) * 4 * MS);
                trial.ran(sample(thread as i32, from, Nanos::from_millis(4), false));
            }
        }
        let found = trial.found(Some(Nanos::from_millis(50)));
        assert!(found.peak <= Share::from_f64(2.0) && found.peak >= found.mean, "{} of 2", found.peak);
        assert!(trial.found(None).peak <= Share::from_f64(2.0));
    }

    #[test]
    fn the_mean_of_a_short_trial_is_not_above_its_peak() {
        let mut trial = Trial::default();
        trial.ran(sample(1, Instant::new(5 * MS), Nanos::from_millis(2), true));
        let found = trial.found(None);
        assert_eq!((found.mean, found.peak, found.lasted), (Share::ONE, Share::ONE, Nanos::from_millis(2)));
    }

    #[test]
    fn a_long_profile_keeps_its_last_jobs() {
        let costs: Vec<_> = (0..5_000).map(Nanos::new).collect();
        assert_eq!(latest(costs).last(), Some(&Nanos::new(4_999)));
        assert_eq!(latest((0..5_000).map(Nanos::new).collect()).len(), Profile::MAX_JOBS);
    }
}
