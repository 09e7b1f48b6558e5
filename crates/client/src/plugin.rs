//! Predictors and controllers of the application's own (AQuoSA §5.4: "the user is allowed to specify his/her
//! own user-level implementation"). They run inside [`crate::Session::end_cycle`], in the application's own
//! time: what they use is charged to the next job, and nobody else waits for it.

use qfabric_types::{Foresight, Nanos, Usage};

/// A predicted computation time, `[h_k, H_k]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// h_k.
    pub low: Nanos,
    /// H_k, not below `low`.
    pub high: Nanos,
}

/// Says how long the next job will take. Its interval travels with the job's end and replaces the daemon's
/// own prediction.
pub trait Predictor {
    /// The job that just ended took `cost`; `hint` is what the application had said of it before it ran.
    fn observe(&mut self, cost: Nanos, hint: Option<f64>);
    /// The computation time of the next job, of which the application says `hint`. None while there is too
    /// little to go by: the daemon then uses its own predictor.
    fn predict(&mut self, hint: Option<f64>) -> Option<Interval>;
}

/// Says which budget the next job should have per server period. The daemon keeps the contract's maximum
/// bandwidth and the host's limits above it.
pub trait Controller {
    /// What the last job used and had been granted, and what the session's own [`Predictor`], if there is
    /// one, says of the next. None leaves the decision to the daemon.
    fn on_usage(&mut self, usage: &Usage, predicted: Option<Interval>) -> Option<Nanos>;
}

/// The ring takes no interval or budget longer than this.
const LONGEST: Nanos = Nanos::from_millis(86_400_000);

/// What the daemon would reject, together with the record that carries it, is turned into nothing here.
pub(crate) fn sensible(known: Foresight) -> Foresight {
    let fine = match known {
        Foresight::Nothing => true,
        Foresight::Hint(hint) => hint.is_finite(),
        Foresight::Interval { low, high } => low <= high && high <= LONGEST,
        Foresight::Budget(budget) => budget <= LONGEST,
    };
    if fine { known } else { Foresight::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_not_said() {
        let ns = Nanos::new;
        for nonsense in [
            Foresight::Hint(f64::NAN),
            Foresight::Hint(f64::INFINITY),
            Foresight::Interval { low: ns(2), high: ns(1) },
            Foresight::Interval { low: ns(2), high: Nanos::MAX },
            Foresight::Budget(Nanos::MAX),
        ] {
            assert_eq!(sensible(nonsense), Foresight::Nothing);
        }
        let fine = Foresight::Interval { low: ns(1), high: ns(1) };
        assert_eq!(sensible(fine), fine);
    }
}
