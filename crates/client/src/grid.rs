//! The grid of releases, `r_k = r_0 + kT`, and the treatment of late jobs. Pure calculation.
//!
//! ```text
//!   r_0        r_1        r_2        r_3        r_4
//!    |--job 0---|-----job 1------....|----------|     job 1 ends in the third period
//! CatchUp:                       2 3 |          4     2 and 3 start at once, back to back, then 4 on its release
//! Skip:                          2   3                a job whose deadline has passed is skipped
//! ```

use qfabric_types::{Instant, Nanos};

/// A job before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// k, the number of the job, from 0.
    pub k: u64,
    /// r_k, the release: the time at which the job may start.
    pub release: Instant,
    /// d_k, the deadline: the release of the next job.
    pub deadline: Instant,
}

/// Treatment of jobs whose release passed while an earlier job ran late. Releases stay on the grid in both cases, so
/// a late job does not shift the later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePolicy {
    /// The jobs run back to back until the backlog is done.
    #[default]
    CatchUp,
    /// Jobs whose deadline has passed are skipped and counted in [`crate::Counters::skipped`]; the first job with a
    /// later deadline runs.
    Skip,
}

/// Position of a session on its grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    origin: Instant,
    period: Nanos,
    /// Number of the job released at `origin`.
    first: u64,
    k: u64,
}

impl Grid {
    pub(crate) fn new(origin: Instant, period: Nanos) -> Self {
        Grid { origin, period, first: 0, k: 0 }
    }

    /// The current job.
    pub(crate) fn job(&self) -> Job {
        let release = self.origin + self.period.saturating_mul(self.k - self.first);
        Job { k: self.k, release, deadline: release + self.period }
    }

    /// Moves on to the next job.
    pub(crate) fn advance(&mut self) {
        self.k += 1;
    }

    /// Releases the current job at `now`, and later jobs relative to `now`.
    pub(crate) fn rebase(&mut self, now: Instant) {
        (self.origin, self.first) = (now, self.k);
    }

    /// Changes the distance of the releases after the current job.
    pub(crate) fn change_period(&mut self, period: Nanos) {
        let release = self.job().release;
        (self.origin, self.first, self.period) = (release, self.k, period);
    }

    /// Skips the jobs whose deadline has passed; returns their number.
    pub(crate) fn skip_lost(&mut self, now: Instant) -> u64 {
        let lost = now.since(self.job().release).get() / self.period.get().max(1);
        self.k += lost;
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Nanos = Nanos::new(40);

    fn at(k: u64) -> Grid {
        let mut grid = Grid::new(Instant::new(100), T);
        (0..k).for_each(|_| grid.advance());
        grid
    }

    #[test]
    fn releases_stay_on_the_grid_however_late_jobs_end() {
        let job = at(3).job();
        assert_eq!((job.k, job.release, job.deadline), (3, Instant::new(220), Instant::new(260)));
    }

    #[test]
    fn only_jobs_whose_deadline_has_passed_are_skipped() {
        for (now, skipped, release) in [(99, 0, 140), (140, 0, 140), (179, 0, 140), (180, 1, 180), (300, 4, 300)] {
            let mut grid = at(1);
            assert_eq!(grid.skip_lost(Instant::new(now)), skipped, "at {now}");
            assert_eq!((grid.job().release, grid.job().k), (Instant::new(release), 1 + skipped), "at {now}");
        }
    }

    #[test]
    fn a_changed_period_counts_from_the_current_release() {
        let mut grid = at(2);
        grid.change_period(Nanos::new(10));
        assert_eq!(grid.job().release, Instant::new(180));
        grid.advance();
        assert_eq!((grid.job().k, grid.job().release), (3, Instant::new(190)));
    }

    #[test]
    fn a_grid_can_start_anew_without_renumbering_jobs() {
        let mut grid = at(2);
        grid.rebase(Instant::new(1_000));
        assert_eq!((grid.job().k, grid.job().release), (2, Instant::new(1_000)));
    }
}
