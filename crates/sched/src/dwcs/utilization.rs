//! Sums of fractions for the admission test: exact if the common denominator fits, otherwise a lower and an upper
//! bound.

use qfabric_types::Share;

use super::task::{MAX_TIME, Task};

/// Sums with a common denominator up to this are exact.
const MAX_DENOMINATOR: u128 = 1 << 64;
/// Denominator of the bounds of all other sums.
const GRAIN: u128 = 1 << 58;
const PPM: u128 = 1_000_000;

/// A share of the processor as a fraction, between two bounds; the bounds are equal if the value is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utilization {
    low: Fraction,
    high: Fraction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fraction {
    num: u128,
    den: u128,
}

impl Utilization {
    /// U = Σ(1 − x/y)·C/T. If U exceeds the capacity, no schedule can keep the windows.
    pub fn of_windows(tasks: &[Task]) -> Self {
        let part = |task: &Task| {
            let (x, y) = (u128::from(task.window.x), u128::from(task.window.y));
            Fraction::new((y - x) * u128::from(task.service), y * u128::from(task.period))
        };
        Self::sum(tasks.iter().map(part))
    }

    /// ΣC/T: the share that serves every period of every task.
    pub fn of_services(tasks: &[Task]) -> Self {
        Self::sum(tasks.iter().map(|task| Fraction::new(task.service.into(), task.period.into())))
    }

    fn sum(parts: impl Iterator<Item = Fraction> + Clone) -> Self {
        let exact = parts.clone().try_fold(Fraction { num: 0, den: 1 }, Fraction::plus);
        let grains = |round: u128| {
            let num = parts.clone().map(|part| (part.num * GRAIN + round * (part.den - 1)) / part.den).sum();
            Fraction { num, den: GRAIN }
        };
        match exact {
            Some(sum) => Utilization { low: sum, high: sum },
            None => Utilization { low: grains(0), high: grains(1) },
        }
    }

    /// Whether the value is certainly at most `capacity`.
    pub fn fits(&self, capacity: Share) -> bool {
        self.high.num * PPM <= u128::from(capacity.ppm()) * self.high.den
    }

    /// Whether the value is certainly above `capacity`.
    pub fn exceeds(&self, capacity: Share) -> bool {
        self.low.num * PPM > u128::from(capacity.ppm()) * self.low.den
    }

    /// The upper bound as a number of processors, for display.
    pub fn as_f64(&self) -> f64 {
        self.high.num as f64 / self.high.den as f64
    }

    /// The rest of `capacity`; `None` if there is no rest.
    pub(super) fn rest(&self, capacity: Share) -> Option<Rest> {
        let whole = u128::from(capacity.ppm()) * self.high.den;
        let num = whole.checked_sub(self.high.num * PPM).filter(|&num| num > 0)?;
        Some(Rest(Fraction::new(num, self.high.den * PPM)))
    }
}

/// U_r: the remaining share of the processor; not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest(Fraction);

impl Rest {
    /// The shortest whole period in which `service` does not exceed U_r: ceil(C/U_r), at least C.
    pub(crate) fn period_for(self, service: u64) -> u64 {
        let Fraction { mut num, mut den } = self.0;
        while den > u128::MAX >> 64 && num > 1 {
            (num, den) = (num >> 1, (den >> 1) + 1);
        }
        let period = u128::from(service).saturating_mul(den).div_ceil(num);
        period.clamp(service.into(), MAX_TIME.into()) as u64
    }
}

impl Fraction {
    fn new(num: u128, den: u128) -> Self {
        let divisor = gcd(num, den).max(1);
        Fraction { num: num / divisor, den: den / divisor }
    }

    fn plus(self, other: Fraction) -> Option<Fraction> {
        let common =
            (self.den / gcd(self.den, other.den)).checked_mul(other.den).filter(|&den| den <= MAX_DENOMINATOR)?;
        let num = self.num.checked_mul(common / self.den)?.checked_add(other.num * (common / other.den))?;
        Some(Fraction { num, den: common })
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use qfabric_types::Window;

    use super::*;

    fn task(period: u64, service: u64, x: u64, y: u64) -> Task {
        Task::new(period, service, Window::new(x, y).unwrap()).unwrap()
    }

    #[test]
    fn three_thirds_are_exactly_one() {
        let thirds = [task(3, 1, 0, 1); 3];
        assert!(Utilization::of_services(&thirds).fits(Share::ONE));
        assert!(!Utilization::of_services(&thirds).exceeds(Share::ONE));
        assert!(Utilization::of_services(&thirds).rest(Share::ONE).is_none());
    }

    #[test]
    fn figure_15_d_leaves_a_task_server_two_ticks() {
        let tasks = [task(3, 1, 1, 2), task(3, 1, 1, 4)];
        let utilization = Utilization::of_windows(&tasks);
        assert!((utilization.as_f64() - 0.4167).abs() < 1e-4);
        assert_eq!(utilization.rest(Share::ONE).unwrap().period_for(1), 2);
    }

    #[test]
    fn huge_denominators_give_bounds_around_the_exact_value() {
        let primes = [1_000_000_007, 998_244_353, 2_147_483_647, 1_000_000_009, 67_280_421_310_721];
        let tasks: Vec<Task> = primes.map(|p| task(p, p / 5, 1, 255)).into();
        let sum = Utilization::of_services(&tasks);
        assert!(sum.low != sum.high && sum.fits(Share::ONE) && !sum.exceeds(Share::ONE));
        assert!(sum.exceeds(Share::from_ppm(999_000)) && !sum.fits(Share::from_ppm(999_000)));
    }

    #[test]
    fn the_largest_times_do_not_overflow() {
        let tasks = [task(MAX_TIME, MAX_TIME, 0, 1), task(MAX_TIME - 1, 1, 254, 255), task(MAX_TIME - 3, 7, 1, 251)];
        let sum = Utilization::of_windows(&tasks);
        assert!(sum.exceeds(Share::from_ppm(999_999)) && sum.rest(Share::ONE).is_none());
        let rest = Utilization::of_windows(&tasks[1..]).rest(Share::ONE).unwrap();
        assert!(rest.period_for(MAX_TIME) >= MAX_TIME);
    }
}
