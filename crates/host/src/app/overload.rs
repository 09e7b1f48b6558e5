//! Whether the jobs of an application are short of budget so often that it should ask for less (AQuoSA 2009, §7).
//!
//! ```text
//!   calm ---(BEGIN of the last WINDOW jobs were short)---> overloaded ---(no more than END of them)---> calm
//! ```
//! A job is short where its controller had decided on more than the supervisor granted. Not counted are jobs before the
//! predictor's first word and those with a controller in the kernel, which ask for all they may have whatever they need.

use qfabric_types::{ControlPlace, Overload, Share};

use super::App;
use crate::HYSTERESIS;
use crate::thread::Governor;

/// Jobs looked back at.
const WINDOW: u32 = 16;
/// Half of them: a group of pictures with one or two dear ones is no overload.
const BEGIN: u32 = 8;
/// An eighth of them: one that wavers about [`BEGIN`] is told of once.
const END: u32 = 2;

/// What became of the last jobs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shortage {
    /// One bit per job that was short, the last one lowest.
    jobs: u32,
    overload: Option<Overload>,
}

impl Shortage {
    /// A job ended that had asked for `wanted` and was `granted` so much.
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
    /// Its jobs are short of what they need.
    pub(crate) fn overload(&self) -> Option<Overload> {
        self.shortage.overload
    }

    /// A job of thread `at` ends whose budget is the one decided last.
    pub(super) fn look_for_shortage(&mut self, at: usize) {
        let (Governor::Marked(controller) | Governor::Activations(controller, _)) = &self.threads[at].governor else {
            return;
        };
        let asked_all = controller.is_learning() || self.contract.controller == ControlPlace::Kernel;
        if !asked_all && !self.is_resting() && !self.suspended {
            self.weigh();
            // What others lend it is not short, though its own jobs need more than it asked for.
            self.shortage.count(self.needs().min(self.wanted), self.granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After each job of `short`: overloaded or not.
    fn told(short: impl IntoIterator<Item = bool>) -> Vec<bool> {
        let (mut shortage, granted) = (Shortage::default(), Share::from_ppm(200_000));
        let wanted = |short| if short { Share::from_ppm(300_000) } else { granted };
        let count = |short| {
            shortage.count(wanted(short), granted);
            shortage.overload.is_some()
        };
        short.into_iter().map(count).collect()
    }

    fn changes(told: &[bool]) -> Vec<usize> {
        (1..told.len()).filter(|&k| told[k] != told[k - 1]).collect()
    }

    #[test]
    fn half_of_the_last_jobs_begin_an_overload_and_it_ends_when_an_eighth_is_left() {
        let told = told((0..40).map(|k| k < 20));
        assert_eq!(changes(&told), [7, 33], "the 8th short job begins it, the 14th job in a row that is not ends it");
    }

    #[test]
    fn one_dear_job_in_a_group_is_no_overload_and_wavering_is_told_once() {
        assert!(told((0..200).map(|k| k % 3 == 0)).iter().all(|over| !over), "a third of the jobs");
        assert_eq!(changes(&told((0..200).map(|k| k % 2 == 0))).len(), 1, "half of them");
        assert_eq!(changes(&told((0..400).map(|k| k % 20 < 10))).len(), 1, "ten and ten");
    }

    #[test]
    fn less_than_what_is_worth_a_change_is_not_short() {
        let mut shortage = Shortage::default();
        for _ in 0..100 {
            shortage.count(Share::from_ppm(200_400), Share::from_ppm(200_000));
        }
        assert_eq!(shortage.overload, None);
    }
}
