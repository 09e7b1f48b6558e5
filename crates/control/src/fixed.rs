//! The controller of [`TaskController`](crate::TaskController) in whole nanoseconds, for servers in the kernel.
//!
//! Equals `bpf/include/aquosa.h` bit for bit, so tests can compare the kernel's law with the real-valued law
//! through this file. Supports `MA[n]` and `MMA[n,S]` only. Rounding: up for the need of a job, below the open
//! right end of (7). The predicted ends are within `3 + 2ρ` ns of the real-valued ones while no sample is 2^29 ns
//! (0.54 s) or more from the mean, and within `3 + 17ρ` ns otherwise. Source: AQuoSA 2009, §4.3.1 (7), §4.3.2.

use qfabric_types::Choice;

/// Largest number of samples: n of `MA[n]`, n·S of `MMA[n,S]`.
pub const MAX_SAMPLES: u32 = 64;
/// Larger costs are cut to this, in ns.
const COST_MAX: u64 = u32::MAX as u64;
/// Deviations of at least 2^29 ns are squared with [`COARSE_SHIFT`] bits less, so that the sum of 64 squares fits
/// into 64 bits.
const FINE_BITS: u32 = 29;
const COARSE_SHIFT: u32 = 3;

/// The specification of a controller. Lengths in server periods P, budgets in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSpec {
    /// n, the samples of a lane.
    pub samples: u32,
    /// S, the number of lanes; 1 for `MA[n]`.
    pub lanes: u32,
    /// ρ in thousandths, at most 10,000.
    pub rho_milli: u32,
    /// L = T/P.
    pub periods_per_job: u32,
    /// ê = e/P.
    pub early: u32,
    /// Ê = E/P.
    pub late: u32,
    /// The budget to choose from the family.
    pub choice: Choice,
    pub period_ns: u64,
    pub min_budget_ns: u64,
    /// Q̄, the largest budget.
    pub max_budget_ns: u64,
}

#[derive(Clone, Debug)]
pub struct FixedController {
    spec: FixedSpec,
    /// The cost of job k is at index k modulo n·S.
    costs: [u32; MAX_SAMPLES as usize],
    jobs: u64,
    shortest_ns: u64,
    prediction: Option<(u64, u64)>,
}

/// The specification has no samples or lanes, more than [`MAX_SAMPLES`], or lengths out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

impl FixedController {
    /// # Errors
    /// [`Unfit`], by the same rules as in the kernel.
    pub fn new(spec: FixedSpec) -> Result<Self, Unfit> {
        let lengths = [spec.periods_per_job, spec.early, spec.late].iter().all(|&periods| periods <= 65_535);
        let samples = (1..=MAX_SAMPLES).contains(&spec.samples)
            && (1..=MAX_SAMPLES).contains(&spec.lanes)
            && spec.samples * spec.lanes <= MAX_SAMPLES;
        let budgets =
            0 < spec.min_budget_ns && spec.min_budget_ns <= spec.max_budget_ns && spec.max_budget_ns <= COST_MAX;
        if !lengths || !samples || !budgets || spec.periods_per_job == 0 || spec.rho_milli > 10_000 {
            return Err(Unfit);
        }
        Ok(FixedController { spec, costs: [0; MAX_SAMPLES as usize], jobs: 0, shortest_ns: 0, prediction: None })
    }

    /// Records a job with the cost `cost_ns` that ended `late` server periods after its deadline (0: in time).
    /// Returns the budget of the next job, in ns.
    pub fn on_job(&mut self, cost_ns: u64, late: u64) -> u64 {
        self.observe(cost_ns.min(COST_MAX));
        self.prediction = self.predict();
        let most = self.spec.max_budget_ns;
        let budget = self.prediction.map_or(most, |(low, high)| self.law(low, high, late));
        let periods = u64::from(self.spec.periods_per_job) + u64::from(self.spec.late);
        let least = self.shortest_ns.div_ceil(2 * periods).max(self.spec.min_budget_ns);
        budget.max(least).min(most)
    }

    /// [h, H] for the next job, in ns; `None` during the warm-up.
    pub fn prediction(&self) -> Option<(u64, u64)> {
        self.prediction
    }

    fn observe(&mut self, cost: u64) {
        let ring = u64::from(self.spec.samples * self.spec.lanes);
        let shortest = self.shortest_ns + self.shortest_ns.div_ceil(50);
        self.costs[(self.jobs % ring) as usize] = cost as u32;
        self.shortest_ns = if self.jobs == 0 { cost } else { cost.min(shortest) };
        self.jobs += 1;
    }

    /// The samples of the next job's lane.
    fn lane(&self) -> impl Iterator<Item = u64> + Clone {
        let (samples, lanes) = (self.spec.samples as usize, self.spec.lanes as usize);
        let first = (self.jobs % lanes as u64) as usize;
        (0..samples).map(move |index| u64::from(self.costs[first + index * lanes]))
    }

    fn predict(&self) -> Option<(u64, u64)> {
        let samples = u64::from(self.spec.samples);
        if self.jobs < samples * u64::from(self.spec.lanes) {
            return None;
        }
        let sum: u64 = self.lane().sum();
        let mean = sum / samples;
        let distances = self.lane().map(|cost| cost.abs_diff(mean));
        let coarse = distances.clone().any(|distance| distance >> FINE_BITS != 0);
        let shift = if coarse { COARSE_SHIFT } else { 0 };
        let squares: u64 = distances.map(|distance| (distance >> shift).pow(2)).sum();
        let deviation = sqrt_up(squares.div_ceil(samples)) << shift;
        let half = (deviation * u64::from(self.spec.rho_milli)).div_ceil(1000);
        let high = sum.div_ceil(samples) + half;
        (high > 0).then_some((mean.saturating_sub(half), high))
    }

    /// (7). Outside the family: the left end, or Q̄ if there is no left end.
    fn law(&self, low: u64, high: u64, late: u64) -> u64 {
        let (periods, most) = (u64::from(self.spec.periods_per_job), self.spec.max_budget_ns);
        let Some(until_late) = (periods + u64::from(self.spec.late)).checked_sub(late).filter(|&left| left > 0) else {
            return most;
        };
        let left = high.div_ceil(until_late).min(most);
        let until_early = periods.saturating_sub(1 + u64::from(self.spec.early)).saturating_sub(late);
        // The right end is open: take the largest whole budget below it.
        let right = low.saturating_sub(1).checked_div(until_early).map_or(left, |right| right.min(most - 1));
        if right > left { self.point(low, high, late, left, right) } else { left }
    }

    fn point(&self, low: u64, high: u64, late: u64, left: u64, right: u64) -> u64 {
        match self.spec.choice {
            Choice::Left => left,
            Choice::Middle => left + (right - left).div_ceil(2),
            Choice::Right => right,
            Choice::Zero => self.zero(low, high, late).filter(|&from| from < right).unwrap_or(left).max(left),
            Choice::Cost => self.cheapest(low, high).clamp(left, right),
        }
    }

    /// The budget of Fact 1; 0, which is left of every family, if there is none.
    fn zero(&self, low: u64, high: u64, late: u64) -> Option<u64> {
        let periods = u64::from(self.spec.periods_per_job).checked_sub(late).filter(|&left| left > 0)?;
        Some((low + high) / 2 / periods + 1)
    }

    fn cheapest(&self, low: u64, high: u64) -> u64 {
        let width = (high - low).min(COST_MAX);
        sqrt_up((width * self.spec.period_ns).div_ceil(self.spec.periods_per_job.into()))
    }
}

/// The least number whose square is at least `value`.
fn sqrt_up(value: u64) -> u64 {
    let root = value.isqrt();
    root + u64::from(root * root < value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::Interleaved;
    use crate::predict::MovingAverage;
    use crate::{Interval, Target, law};
    use proptest::prelude::*;
    use qfabric_types::Nanos;

    const CHOICES: [Choice; 5] = [Choice::Left, Choice::Middle, Choice::Right, Choice::Zero, Choice::Cost];

    fn spec() -> FixedSpec {
        FixedSpec {
            samples: 4,
            lanes: 1,
            rho_milli: 1000,
            periods_per_job: 4,
            early: 0,
            late: 0,
            choice: Choice::Left,
            period_ns: 10_000_000,
            min_budget_ns: 1024,
            max_budget_ns: 8_000_000,
        }
    }

    #[test]
    fn an_unknown_task_has_the_largest_budget_during_the_warm_up() {
        let mut controller = FixedController::new(FixedSpec { samples: 3, ..spec() }).unwrap();
        assert_eq!([0; 3].map(|_| controller.on_job(8_000_000, 0)), [8_000_000, 8_000_000, 2_000_000]);
        assert_eq!(controller.on_job(8_000_000, 1), 2_666_667, "three server periods are left, rounded up");
        assert_eq!(controller.on_job(8_000_000, 4), 8_000_000, "no server period is left");
    }

    #[test]
    fn an_invalid_specification_is_refused() {
        for unfit in [
            FixedSpec { samples: 0, ..spec() },
            FixedSpec { samples: 33, lanes: 2, ..spec() },
            FixedSpec { lanes: u32::MAX, ..spec() },
            FixedSpec { periods_per_job: 0, ..spec() },
            FixedSpec { early: 70_000, ..spec() },
            FixedSpec { min_budget_ns: 0, ..spec() },
            FixedSpec { min_budget_ns: 9_000_000, ..spec() },
            FixedSpec { rho_milli: 10_001, ..spec() },
        ] {
            assert_eq!(FixedController::new(unfit).err(), Some(Unfit), "{unfit:?}");
        }
    }

    fn specs() -> impl Strategy<Value = FixedSpec> {
        let lengths = (1u32..40, 0u32..12, 0u32..8, prop::sample::select(&CHOICES[..]));
        let shape = (1u32..9, 1u32..8, 0u32..4000);
        (lengths, shape, 1_000_000u64..100_000_000).prop_map(|(lengths, shape, period_ns)| {
            let (periods_per_job, early, late, choice) = lengths;
            let (samples, lanes, rho_milli) = shape;
            let max_budget_ns = period_ns * 9 / 10;
            FixedSpec {
                samples,
                lanes,
                rho_milli,
                periods_per_job,
                early,
                late,
                choice,
                period_ns,
                max_budget_ns,
                min_budget_ns: 1,
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn predictions_are_those_of_the_real_valued_predictors_within_the_bound(
            spec in specs(),
            costs in prop::collection::vec(prop_oneof![0u64..100_000_000, 0u64..4_000_000_000], 1..150),
        ) {
            let rho = f64::from(spec.rho_milli) / 1000.0;
            let mut real = Interleaved::new(spec.samples as usize, spec.lanes as usize, rho);
            let mut fixed = FixedController::new(spec).unwrap();
            for cost in costs {
                fixed.on_job(cost, 0);
                crate::Predictor::observe(&mut real, cost as f64, None);
                let Some(Interval { low, high }) = crate::Predictor::predict(&real, None) else {
                    prop_assert_eq!(fixed.prediction(), None);
                    continue;
                };
                let (fixed_low, fixed_high) = fixed.prediction().unwrap_or((0, 0));
                let bound = 3.0 + 17.0 * rho;
                prop_assert!((fixed_low as f64 - low.max(0.0)).abs() <= bound, "the low end is {}, expected {}", fixed_low, low);
                prop_assert!((fixed_high as f64 - high).abs() <= bound, "the high end is {}, expected {}", fixed_high, high);
            }
        }

        #[test]
        fn budgets_are_those_of_the_real_valued_law_within_the_divisions_rounding(
            spec in specs(), low in 0u64..400_000_000, width in 0u64..400_000_000, late in 0u64..50,
        ) {
            let (period, high) = (Nanos::new(spec.period_ns), low + width + 1);
            let l = f64::from(spec.periods_per_job);
            let job = Nanos::new(spec.period_ns * u64::from(spec.periods_per_job));
            let target = Target::new(job, period, f64::from(spec.early) / l, f64::from(spec.late) / l).on_lattice();
            let costs = Interval { low: low as f64, high: high as f64 };
            let (error, most) = (late as f64 * period.as_f64(), spec.max_budget_ns as f64);
            let fixed = FixedController::new(spec).unwrap().law(low, high, late) as f64;
            let near = |choice| {
                let real = law::decide(&target, choice, costs, error, most);
                (fixed - real).abs() <= 1.5 + real * 1e-12
            };
            // If both ends of (7) meet, or the end of Fact 1 and the right end, one nanosecond decides which rule
            // applies; both budgets are then correct.
            let meets = |choice: Choice| match law::Family::at(&target, costs, error, most) {
                law::Family { left, right: Some(right) } => {
                    let centre = costs.centre() / (l - late as f64);
                    right - left < 3.0 || (choice == Choice::Zero && (centre - right).abs() < 3.0)
                }
                law::Family { left, right: None } => {
                    let right = low as f64 / (l - 1.0 - f64::from(spec.early) - late as f64);
                    right.is_finite() && (right - left).abs() < 3.0
                }
            };
            prop_assert!(near(spec.choice) || meets(spec.choice), "{fixed} for {:?}", spec);
        }
    }

    #[test]
    fn a_moving_average_is_an_interleaved_one_of_one_lane() {
        let mut real = MovingAverage::new(4, 1.0);
        let mut fixed = FixedController::new(spec()).unwrap();
        for cost in [9_000_000u64, 2_000_000, 4_000_000, 4_000_000, 6_000_000] {
            fixed.on_job(cost, 0);
            crate::Predictor::observe(&mut real, cost as f64, None);
        }
        let Interval { low, high } = crate::Predictor::predict(&real, None).unwrap();
        let (fixed_low, fixed_high) = fixed.prediction().unwrap();
        assert!((fixed_low as f64 - low).abs() < 4.0 && (fixed_high as f64 - high).abs() < 4.0);
    }
}
