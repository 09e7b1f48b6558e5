//! Detects overload: the jobs of an application are short so often that it should request less (AQuoSA 2009, §7).
//!
//! ```text
//!   calm ---(BEGIN of the last WINDOW jobs were short)---> overloaded ---(no more than END of them)---> calm
//! ```
//! A job is short if its controller decided on more than the supervisor granted. Jobs before the predictor's first
//! prediction and jobs with a controller in the kernel do not count, because they request the maximum whatever they
//! need.

use qfabric_types::{ControlPlace, Overload, Share};

use super::App;
use crate::HYSTERESIS;
use crate::thread::Governor;

/// Number of jobs considered.
const WINDOW: u32 = 16;
/// Half of the jobs: a group of pictures with one or two expensive ones is not an overload.
const BEGIN: u32 = 8;
/// An eighth of the jobs: an application that wavers about [`BEGIN`] is reported once.
const END: u32 = 2;

/// Which of the last jobs were short.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShortJobs {
    /// One bit per job, 1 if it was short; the last job is the lowest bit.
    jobs: u32,
    overload: Option<Overload>,
}

impl ShortJobs {
    /// Counts a job that wanted `wanted` and was granted `granted`.
    pub(super) fn count(&mut self, wanted: Share, granted: Share) {
        let short = granted + HYSTERESIS < wanted;
        self.jobs = ((self.jobs << 1) | u32::from(short)) & ((1 << WINDOW) - 1);
        let often = self.jobs.count_ones();
        let lasts = if self.overload.is_some() { often > END } else { often >= BEGIN };
        self.overload = match (lasts, short) {
            (true, true) => Some(Overload { wanted, granted }),
            (true, false) => self.overload,
            (false, _) => None,
        };
    }
}

impl App {
    /// The overload, if its jobs are short too often.
    pub(crate) fn overload(&self) -> Option<Overload> {
        self.short_jobs.overload
    }

    /// Counts a job of thread `at` that ends with the budget decided last.
    pub(super) fn look_for_shortage(&mut self, at: usize) {
        let (Governor::Marked(controller) | Governor::Activations(controller, _)) = &self.threads[at].governor else {
            return;
        };
        let asked_all = controller.is_learning() || self.contract.controller == ControlPlace::Kernel;
        if !asked_all && !self.is_resting() && !self.suspended {
            self.weigh();
            // A job that relies on unused time of others is not short, although it needs more than was requested. A job
            // that is limited to its share because it is late is short.
            self.short_jobs.count(self.needs().min(self.unlimited()), self.granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // After each job of `short`: overloaded or not.
    fn told(short: impl IntoIterator<Item = bool>) -> Vec<bool> {
        let (mut jobs, granted) = (ShortJobs::default(), Share::from_ppm(200_000));
        let wanted = |short| if short { Share::from_ppm(300_000) } else { granted };
        let count = |short| {
            jobs.count(wanted(short), granted);
            jobs.overload.is_some()
        };
        short.into_iter().map(count).collect()
    }

    fn changes(told: &[bool]) -> Vec<usize> {
        (1..told.len()).filter(|&k| told[k] != told[k - 1]).collect()
    }

    #[test]
    fn an_overload_begins_at_half_of_the_last_jobs_and_ends_at_an_eighth() {
        let told = told((0..40).map(|k| k < 20));
        assert_eq!(
            changes(&told),
            [7, 33],
            "the 8th short job begins it, the 14th job in a row that is not short ends it"
        );
    }

    #[test]
    fn one_expensive_job_in_a_group_is_no_overload_and_wavering_is_reported_once() {
        assert!(told((0..200).map(|k| k % 3 == 0)).iter().all(|over| !over), "a third of the jobs");
        assert_eq!(changes(&told((0..200).map(|k| k % 2 == 0))).len(), 1, "half of them");
        assert_eq!(changes(&told((0..400).map(|k| k % 20 < 10))).len(), 1, "ten and ten");
    }

    #[test]
    fn a_shortage_below_the_hysteresis_does_not_count() {
        let mut jobs = ShortJobs::default();
        for _ in 0..100 {
            jobs.count(Share::from_ppm(200_400), Share::from_ppm(200_000));
        }
        assert_eq!(jobs.overload, None);
    }
}
