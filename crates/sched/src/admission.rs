//! Admission test for one more reservation: `Σ Q_i/P_i <= bound` (AQuoSA (1)).

use qfabric_types::Share;

/// The sum would exceed the bound. A refusal changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverCommitted {
    pub asked: Share,
    pub free: Share,
}

impl std::fmt::Display for OverCommitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "asked for {}, {} is free; ask for less, or end another reservation first", self.asked, self.free)
    }
}

impl std::error::Error for OverCommitted {}

/// Admits `asked` beside `others` if their sum stays within `bound`. On one CPU under EDF and with a bound of one
/// CPU, every reservation is then kept (Theorem 1); on several CPUs under global EDF, lateness is bounded.
///
/// # Errors
/// [`OverCommitted`], with the requested and the free share.
pub fn admit(bound: Share, others: impl Iterator<Item = Share>, asked: Share) -> Result<(), OverCommitted> {
    let free = bound.saturating_sub(others.sum());
    if asked <= free { Ok(()) } else { Err(OverCommitted { asked, free }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_at_the_bound_fits_and_one_above_is_refused_with_both_numbers() {
        let share = Share::from_ppm;
        let held = || [share(300_000), share(500_000)].into_iter();
        assert_eq!(admit(share(950_000), held(), share(150_000)), Ok(()));
        let refusal = admit(share(950_000), held(), share(150_001)).unwrap_err();
        assert_eq!((refusal.asked, refusal.free), (share(150_001), share(150_000)));
    }
}
