//! A reservation: a budget of CPU time in every period.

use serde::{Deserialize, Serialize};

use crate::api::Problem;
use crate::{Nanos, Share};

/// The shortest budget the kernel accepts (`1 << DL_SCALE` in `kernel/sched/deadline.c`).
pub const MIN_BUDGET: Nanos = Nanos::new(1_024);
/// The periods the kernel accepts by default (`sched_deadline_period_min_us`, `…_max_us`).
pub const PERIOD_RANGE: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::new(4_194_304_000));

/// `RSV = (Q, P)`: the holder gets `Q` of CPU time in every `P` (AQuoSA §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Reservation {
    budget: Nanos,
    period: Nanos,
}

/// The pair is not a valid reservation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InvalidReservation {
    /// The budget exceeds the period.
    BudgetOverPeriod { budget: Nanos, period: Nanos },
    /// The budget is below the kernel's granularity.
    BudgetTooShort { budget: Nanos },
    /// The period is outside the kernel's range.
    PeriodOutOfRange { period: Nanos },
}

impl InvalidReservation {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            Self::BudgetOverPeriod { budget, period } => {
                (format!("budget {budget} is longer than its period {period}"), "ask for at most the period")
            }
            Self::BudgetTooShort { budget } => (
                format!("budget {budget} is below the least budget {MIN_BUDGET}"),
                "ask for more, or for no reservation",
            ),
            Self::PeriodOutOfRange { period } => {
                let (least, most) = PERIOD_RANGE;
                (format!("period {period} is outside {least} to {most}"), "choose a period in this range")
            }
        };
        Problem::new("invalid_contract", message, next_step)
    }
}

impl Reservation {
    /// `budget` in every `period`.
    ///
    /// # Errors
    /// [`InvalidReservation`] if the kernel would refuse the pair itself, independent of the free bandwidth.
    pub fn new(budget: Nanos, period: Nanos) -> Result<Self, InvalidReservation> {
        if period < PERIOD_RANGE.0 || period > PERIOD_RANGE.1 {
            return Err(InvalidReservation::PeriodOutOfRange { period });
        }
        if budget > period {
            return Err(InvalidReservation::BudgetOverPeriod { budget, period });
        }
        if budget < MIN_BUDGET {
            return Err(InvalidReservation::BudgetTooShort { budget });
        }
        Ok(Reservation { budget, period })
    }

    /// Q.
    pub fn budget(self) -> Nanos {
        self.budget
    }
    /// P.
    pub fn period(self) -> Nanos {
        self.period
    }
    /// B = Q/P, rounded up.
    pub fn share(self) -> Share {
        Share::of_budget(self.budget, self.period)
    }
}

#[derive(Serialize, Deserialize)]
struct Parts {
    budget_ns: Nanos,
    period_ns: Nanos,
}

impl TryFrom<Parts> for Reservation {
    type Error = InvalidReservation;
    fn try_from(parts: Parts) -> Result<Self, InvalidReservation> {
        Reservation::new(parts.budget_ns, parts.period_ns)
    }
}

impl From<Reservation> for Parts {
    fn from(r: Reservation) -> Parts {
        Parts { budget_ns: r.budget, period_ns: r.period }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Nanos = Nanos::from_millis(10);

    #[test]
    fn a_budget_above_its_period_is_refused_with_both_numbers() {
        let refusal = Reservation::new(Nanos::from_millis(11), P).unwrap_err().to_string();
        assert!(refusal.contains("11 ms") && refusal.contains("10 ms"), "{refusal}");
    }

    #[test]
    fn a_pair_that_the_kernel_refuses_is_refused() {
        assert!(Reservation::new(Nanos::ZERO, P).is_err());
        assert!(Reservation::new(Nanos::new(1_023), P).is_err());
        assert!(Reservation::new(Nanos::from_micros(50), Nanos::from_micros(99)).is_err());
        assert!(Reservation::new(Nanos::from_millis(1), Nanos::from_millis(4_195)).is_err());
        assert!(Reservation::new(P, P).is_ok());
    }

    #[test]
    fn an_invalid_pair_in_json_is_refused() {
        assert!(serde_json::from_str::<Reservation>(r#"{"budget_ns":20,"period_ns":10}"#).is_err());
    }
}
