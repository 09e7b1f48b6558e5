//! Predictors and controllers of the application (AQuoSA §5.4: "the user is allowed to specify his/her own user-level
//! implementation"). They run inside [`crate::Session::end_cycle`], in the application's thread: their CPU time is
//! charged to the next job and delays no other application.

use qfabric_types::{Foresight, Nanos, Usage};

/// A predicted computation time, the interval `[h_k, H_k]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// h_k, the lower bound.
    pub low: Nanos,
    /// H_k, the upper bound; not below `low`.
    pub high: Nanos,
}

/// Predicts the cost of the next job. Its interval is sent with the end of the job and replaces the daemon's
/// prediction.
pub trait Predictor {
    /// Receives the `cost` of the job that just ended; `hint` is the hint that the application gave for it.
    fn observe(&mut self, cost: Nanos, hint: Option<f64>);
    /// Predicts the computation time of the next job; `hint` is the application's hint for it. Return None while
    /// there is too little data: the daemon then uses its own predictor.
    fn predict(&mut self, hint: Option<f64>) -> Option<Interval>;
}

/// Decides the budget of the next job per server period. The contract's maximum bandwidth and the host's limits still
/// apply.
pub trait Controller {
    /// Receives the cost of the last job, its reservation, and the interval from the session's own [`Predictor`], if
    /// there is one. Return None to leave the decision to the daemon.
    fn on_usage(&mut self, usage: &Usage, predicted: Option<Interval>) -> Option<Nanos>;
}

/// Longest interval or budget that the ring accepts: 24 h.
const LONGEST: Nanos = Nanos::from_millis(86_400_000);

/// Replaces foresight that the daemon would reject, together with the job's record, by [`Foresight::Nothing`].
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
