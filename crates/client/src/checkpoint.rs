//! Checkpoints in the code of a job: does its rest still fit into the time that is left? (000 §6.4.2.1)

use qfabric_control::Slowdown;
use qfabric_types::Nanos;
use qfabric_types::ring::{Checkpoint, Grant};

/// The part of a job that must be done before its own CPU time counts for the rest. A shorter beginning says little.
const TELLING: f64 = 0.1;

/// The time that the rest of a job takes at the present clock. `done`: the part of its work that is done, 0 to 1;
/// `used`: its CPU time so far.
///
/// The whole job costs as much as the daemon predicts, or as much more as this job has shown so far. It takes longer
/// than its cost if jobs before were slowed down ([`Slowdown`]), or if the reservation does not give the rest at once.
/// The latter is counted at its best, a budget that was filled up just now, so a job that is only waiting for its next
/// budget is not late.
pub(crate) fn left_run(done: f64, used: Nanos, grant: Grant, slowdown: Slowdown) -> Nanos {
    let predicted = grant.predicted.as_f64();
    let whole = if done >= TELLING { predicted.max(used.as_f64() / done) } else { predicted };
    let cost = whole * (1.0 - done);
    let (budget, period) = (grant.budget.as_f64(), grant.period.as_f64());
    let reserved = if budget > 0.0 { cost * period / budget - (period - budget) } else { 0.0 };
    Nanos::from_f64(slowdown.time_of(cost).max(reserved)).min(Checkpoint::LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Nanos {
        Nanos::from_millis(n)
    }

    /// A prediction, and a reservation of `budget` ms in every 10 ms; 0: none.
    fn grant(predicted: u64, budget: u64) -> Grant {
        Grant { predicted: ms(predicted), budget: ms(budget), period: ms(10), ..Grant::default() }
    }

    fn left(done: f64, used: u64, grant: Grant) -> Nanos {
        left_run(done, ms(used), grant, Slowdown::default())
    }

    #[test]
    fn the_rest_is_that_of_the_prediction_or_of_a_job_that_is_longer() {
        assert_eq!(left(0.0, 0, grant(20, 0)), ms(20));
        assert_eq!(left(0.5, 10, grant(20, 0)), ms(10));
        assert_eq!(left(0.5, 3, grant(20, 0)), ms(10), "a quick start is no promise");
        assert_eq!(left(0.5, 30, grant(20, 0)), ms(30));
        assert_eq!(left(1.0, 30, grant(20, 0)), Nanos::ZERO);
        assert_eq!(left(0.5, 30, grant(0, 0)), ms(30), "without a prediction");
    }

    #[test]
    fn a_short_beginning_says_nothing_and_no_number_is_beyond_a_day() {
        assert_eq!(left(0.01, 30, grant(20, 0)), Nanos::from_f64(19.8e6));
        let absurd = Grant { predicted: Nanos::MAX, ..Grant::default() };
        assert_eq!(left(0.0, 0, absurd), Checkpoint::LONGEST);
    }

    #[test]
    fn a_reservation_gives_the_rest_in_its_periods() {
        // Half of a CPU: the first 5 ms at once, the others after the next period has begun.
        assert_eq!(left(0.5, 10, grant(20, 5)), ms(15));
        assert_eq!(left(0.75, 15, grant(20, 5)), ms(5));
        assert_eq!(left(0.9, 18, grant(20, 5)), ms(2));
    }
}
