//! Finds the jobs of a thread without marks: its CPU time between sleeps, merged into one job per period.
//!
//! **Merging.** A job begins with the first stretch on a CPU after a sleep. It includes every later stretch in the
//! same period T, even after sleeps (a decoder that waits for its display, a reader that waits for its disk). It
//! ends when the thread last slept in that period. The period is closed `lead` before the next release, so that the
//! decision takes effect in time. The job of a thread that has not slept by then stays open. At each release that
//! the thread runs through without a sleep, one late job is counted, with the CPU time since the last one; it ends
//! with the next server period.
//!
//! ```text
//!   Asleep --ran--> Open --slept, T − lead over--> Asleep        one job, on time or early
//!                    |  ^
//!                    |  `--- ran on past the release: one late job, the next begins at the release
//!                    `-- slept after the release --> Asleep      one late job
//! ```
//!
//! **Release.** Only stretches on the CPU are seen, not wake-ups. A thread that runs up to a quarter period before
//! its expected release was released early, and the grid moves there at once. A thread that runs later had to wait,
//! or its clock drifts: the release is taken at the grid, and the grid follows by an eighth of the distance. After
//! half a period without a stretch the grid starts again. Source: issue of part 1, "jobs are taken as activations
//! between sleeps"; AQuoSA leaves this open.

use qfabric_types::{Foresight, Instant, JobRecord, Nanos, Sample};

#[derive(Clone, Copy, Debug)]
struct Open {
    release: Instant,
    used: Nanos,
    /// End of the last stretch.
    end: Instant,
    slept: bool,
    /// Number of releases that the thread ran through without a sleep.
    behind: u64,
}

/// The activations of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Activations {
    period: Nanos,
    server_period: Nanos,
    lead: Nanos,
    k: u64,
    /// Release of the last job.
    last: Option<Instant>,
    open: Option<Open>,
}

impl Activations {
    pub(crate) fn new(period: Nanos, server_period: Nanos, lead: Nanos) -> Self {
        Activations { period, server_period, lead, k: 0, last: None, open: None }
    }

    /// When the open job must be closed; NEVER if there is none or it is late.
    pub(crate) fn due(&self) -> Instant {
        self.open.filter(|job| job.slept).map_or(Instant::NEVER, |job| self.close_at(job))
    }

    /// CPU time of the open job so far.
    pub(crate) fn used(&self) -> Nanos {
        self.open.map_or(Nanos::ZERO, |job| job.used)
    }

    /// Whether a job is open whose thread does not sleep.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some_and(|job| !job.slept)
    }

    fn close_at(&self, job: Open) -> Instant {
        job.release + self.period - self.lead
    }

    /// Adds a stretch on the CPU. Returns the job that it ended: at most one per stretch.
    pub(crate) fn ran(&mut self, sample: &Sample) -> Option<JobRecord> {
        let &Sample { from, to, used, slept, .. } = sample;
        let ended = self.on_time(from);
        let job = self.open.get_or_insert(Open {
            release: next_release(self.last, from, self.period),
            used: Nanos::ZERO,
            end: from,
            slept: false,
            behind: 0,
        });
        job.used += used;
        (job.end, job.slept) = (to, slept);
        let job = *job;
        ended.or_else(|| self.ran_past(job))
    }

    /// Closes the open job if that is due.
    pub(crate) fn on_time(&mut self, now: Instant) -> Option<JobRecord> {
        let job = self.open.filter(|job| job.slept && now >= self.close_at(*job))?;
        self.open = None;
        Some(self.record(job, job.end))
    }

    /// Handles a thread that ran past the next release. If it slept there, the job is late; otherwise the thread is
    /// behind.
    fn ran_past(&mut self, job: Open) -> Option<JobRecord> {
        let next = job.release + self.period;
        if job.end < next {
            return None;
        }
        if job.slept {
            self.open = None;
            return Some(self.record(job, job.end));
        }
        self.open = Some(Open { release: next, used: Nanos::ZERO, behind: job.behind + 1, ..job });
        // Backlogged: the work of this period is not done, however long it was open before.
        let periods = (job.behind + 1).min(self.period.get() / self.server_period.get().max(1)).max(1);
        Some(self.record(job, next + self.server_period.saturating_mul(periods)))
    }

    fn record(&mut self, job: Open, finish: Instant) -> JobRecord {
        let steps = match self.last {
            Some(last) => (job.release.since(last).get() + self.period.get() / 2) / self.period.get().max(1),
            None => 0,
        };
        self.k += steps.min(1 << 20);
        self.last = Some(job.release);
        JobRecord { k: self.k, release: job.release, finish, cost: job.used, next: Foresight::Nothing }
    }
}

/// The release of the job that first ran at `from`.
fn next_release(last: Option<Instant>, from: Instant, period: Nanos) -> Instant {
    let Some(last) = last else { return from };
    let expected = last + period;
    let late_ns = from.signed_since(expected);
    if late_ns <= 0 || late_ns > period.get() as i64 / 2 {
        return from;
    }
    expected + Nanos::new(late_ns as u64 / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::ThreadId;

    const T: Nanos = Nanos::from_millis(40);
    const P: Nanos = Nanos::from_millis(10);

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000)
    }

    fn tracker() -> Activations {
        Activations::new(T, P, Nanos::from_millis(2))
    }

    /// Stretches `(from, to, slept)` in ms. Returns `(k, release, finish, cost)` in ms.
    fn jobs(tracker: &mut Activations, stretches: &[(u64, u64, bool)]) -> Vec<(u64, u64, u64, u64)> {
        let mut jobs = Vec::new();
        let ms = |ns: u64| ns / 1_000_000;
        for &(from, to, slept) in stretches {
            let used = Nanos::from_millis(to - from);
            let ended = tracker.ran(&Sample { thread: ThreadId(1), from: at(from), to: at(to), used, slept });
            jobs.extend(ended.map(|j| (j.k, ms(j.release.get()), ms(j.finish.get()), ms(j.cost.get()))));
        }
        jobs
    }

    #[test]
    fn stretches_of_one_period_are_one_job() {
        let mut tracker = tracker();
        let stretches = [(0, 5, false), (10, 12, true), (20, 23, true), (40, 45, true), (80, 81, true)];
        assert_eq!(jobs(&mut tracker, &stretches), [(0, 0, 23, 10), (1, 40, 45, 5)]);
    }

    #[test]
    fn a_job_is_closed_before_the_next_release() {
        let mut tracker = tracker();
        assert_eq!(jobs(&mut tracker, &[(0, 5, true)]), []);
        assert_eq!(tracker.due(), at(38));
        assert_eq!(tracker.on_time(at(37)), None);
        assert_eq!(tracker.on_time(at(38)).map(|job| job.finish), Some(at(5)));
        assert_eq!(tracker.due(), Instant::NEVER);
    }

    #[test]
    fn a_job_that_sleeps_after_the_release_is_one_late_job() {
        let mut tracker = tracker();
        assert_eq!(jobs(&mut tracker, &[(0, 5, false), (38, 46, true)]), [(0, 0, 46, 13)]);
    }

    #[test]
    fn a_thread_that_never_sleeps_is_late_every_period() {
        let mut tracker = tracker();
        let stretches: Vec<_> = (0..12).map(|i| (i * 10, i * 10 + 5, false)).collect();
        let jobs = jobs(&mut tracker, &stretches);
        assert_eq!(jobs, [(0, 0, 50, 25), (1, 40, 100, 20)]);
        assert_eq!(tracker.due(), Instant::NEVER, "a running thread has no timer");
    }

    #[test]
    fn the_grid_follows_an_early_thread_at_once_and_a_late_one_slowly() {
        let mut tracker = tracker();
        let jobs = jobs(&mut tracker, &[(0, 5, true), (39, 43, true), (87, 90, true), (121, 125, true)]);
        let releases: Vec<_> = jobs.iter().map(|job| job.1).collect();
        assert_eq!(releases, [0, 39, 80], "8 ms after the grid at 79: one eighth of it");
    }

    #[test]
    fn a_pause_is_not_a_late_job() {
        let mut tracker = tracker();
        let jobs = jobs(&mut tracker, &[(0, 5, true), (1_000, 1_005, true), (1_040, 1_041, true)]);
        assert_eq!(jobs, [(0, 0, 5, 5), (25, 1_000, 1_005, 5)]);
    }
}
