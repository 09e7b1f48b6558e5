//! The grid of releases, `r_k = r_0 + kT`, and what happens to a job that comes late. Pure.
//!
//! ```text
//!   r_0        r_1        r_2        r_3        r_4
//!    |--job 0---|-----job 1------....|----------|     job 1 ends in the third period
//! CatchUp:                       2 3 |          4     2 and 3 start at once, back to back, then 4 on its release
//! Skip:                          2   3                a job whose deadline has passed is left out
//! ```

use qfabric_types::{Instant, Nanos};

/// One job, before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number, from 0.
    pub k: u64,
    /// r_k: when it may start.
    pub release: Instant,
    /// d_k: the next release, by when it should have ended.
    pub deadline: Instant,
}

/// What becomes of jobs whose time has gone by while an earlier one ran late. Releases stay on the grid
/// either way, so lateness never shifts the phase of all later jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// They run, back to back, until the backlog is worked off.
    #[default]
    CatchUp,
    /// Those whose deadline has passed are left out and counted; the first that can still make it runs.
    Skip,
}

/// Where a session is on its grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    origin: Instant,
    period: Nanos,
    /// Number of the job at `origin`.
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

    /// The current job has ended.
    pub(crate) fn advance(&mut self) {
        self.k += 1;
    }

    /// The current job is released at `now`, the later ones from there on.
    pub(crate) fn rebase(&mut self, now: Instant) {
        (self.origin, self.first) = (now, self.k);
    }

    /// From the current job on, releases are `period` apart.
    pub(crate) fn change_period(&mut self, period: Nanos) {
        let release = self.job().release;
        (self.origin, self.first, self.period) = (release, self.k, period);
    }

    /// Leaves out jobs whose deadline has passed; says how many.
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
