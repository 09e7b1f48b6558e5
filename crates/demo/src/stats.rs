//! Computes 95 % intervals.
//!
//! The jobs of one round depend on each other, because a late frame delays the next one. An interval that assumes
//! independent jobs is then too narrow. An interval that only resamples rounds is empty if no round has a miss.
//! Approach: compute both and take the wider end on each side ([`Interval::hull`]).
//!
//! Sources: Clopper & Pearson 1934 (exact, proportions); Efron 1979 (bootstrap, percentile method); the ratio of
//! two rates from the conditional binomial distribution, Przyborowski & Wilenski 1940.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Beta, ContinuousCDF};

/// Probability outside the interval, both sides together.
const OUTSIDE: f64 = 0.05;
/// Bootstrap samples: enough that the ends of the interval vary by about 1 % of its width.
const RESAMPLES: usize = 2_000;

/// `[low, high]`: an interval of this kind contains the true value with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    /// May be infinite for a ratio.
    pub high: f64,
}

impl Interval {
    /// The smallest interval that contains both.
    pub fn hull(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Jobs that ended after their deadline.
    pub misses: u64,
    pub jobs: u64,
}

impl Count {
    /// The sum over all rounds.
    pub fn sum<'a>(rounds: impl IntoIterator<Item = &'a Count>) -> Count {
        let add = |a: Count, b: &Count| Count { misses: a.misses + b.misses, jobs: a.jobs + b.jobs };
        rounds.into_iter().fold(Count::default(), add)
    }
    fn ratio(self) -> f64 {
        self.misses as f64 / self.jobs.max(1) as f64
    }
}

/// Interval of the miss ratio; `[0, 1]` without jobs.
pub fn proportion(rounds: &[Count]) -> Interval {
    let exact = exact(Count::sum(rounds));
    bootstrap(rounds.len(), |pick| Count::sum(pick.iter().map(|&i| &rounds[i])).ratio())
        .map_or(exact, |resampled| exact.hull(resampled))
}

/// Interval of our miss ratio divided by the rival's, from rounds played side by side. Element `i` of both comes
/// from the same cycle, so a slow phase of the machine affects both.
pub fn ratio_of_misses(rounds: &[(Count, Count)]) -> Interval {
    let ours = Count::sum(rounds.iter().map(|r| &r.0));
    let rival = Count::sum(rounds.iter().map(|r| &r.1));
    let exact = exact_ratio(ours, rival);
    let one = |pick: &[usize]| {
        let ours = Count::sum(pick.iter().map(|&i| &rounds[i].0)).ratio();
        let rival = Count::sum(pick.iter().map(|&i| &rounds[i].1)).ratio();
        if rival > 0.0 { ours / rival } else { f64::NAN }
    };
    bootstrap(rounds.len(), one).map_or(exact, |resampled| exact.hull(resampled))
}

/// Interval of the median over rounds with one value each; `None` for fewer than two rounds.
pub fn median(rounds: &[f64]) -> Option<Interval> {
    bootstrap(rounds.len(), |pick| crate::rows::median(pick.iter().map(|&i| rounds[i]).collect()))
}

/// Interval of the mean of the values; `None` for fewer than two values.
pub fn mean(values: &[f64]) -> Option<Interval> {
    bootstrap(values.len(), |pick| pick.iter().map(|&i| values[i]).sum::<f64>() / pick.len() as f64)
}

/// The interval of Clopper and Pearson.
fn exact(count: Count) -> Interval {
    let (k, n) = (count.misses as f64, count.jobs as f64);
    let quantile = |a: f64, b: f64, p: f64| Beta::new(a, b).map_or(f64::NAN, |beta| beta.inverse_cdf(p));
    let low = if count.misses == 0 { 0.0 } else { quantile(k, n - k + 1.0, OUTSIDE / 2.0) };
    let high = if count.misses >= count.jobs { 1.0 } else { quantile(k + 1.0, n - k, 1.0 - OUTSIDE / 2.0) };
    Interval { low, high }
}

/// Given `x + y` misses in total, `x` is binomial with `p = r·n/(r·n + m)`, where `r` is the ratio of the rates.
fn exact_ratio(ours: Count, rival: Count) -> Interval {
    let p = exact(Count { misses: ours.misses, jobs: ours.misses + rival.misses });
    let odds = |p: f64| if p >= 1.0 { f64::INFINITY } else { p / (1.0 - p) };
    let jobs = rival.jobs as f64 / ours.jobs.max(1) as f64;
    Interval { low: odds(p.low) * jobs, high: odds(p.high) * jobs }
}

/// Percentiles of `value` over resampled rounds; `None` for fewer than two rounds, because their spread is
/// unknown. The same rounds always give the same interval.
fn bootstrap(rounds: usize, value: impl Fn(&[usize]) -> f64) -> Option<Interval> {
    if rounds < 2 {
        return None;
    }
    let mut random = ChaCha8Rng::seed_from_u64(rounds as u64);
    let mut pick = vec![0; rounds];
    let mut values: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            pick.fill_with(|| random.random_range(0..rounds));
            value(&pick)
        })
        .filter(|value| value.is_finite())
        .collect();
    values.sort_by(f64::total_cmp);
    let at = |p: f64| values.get(((values.len() as f64 - 1.0) * p).round() as usize).copied();
    Some(Interval { low: at(OUTSIDE / 2.0)?, high: at(1.0 - OUTSIDE / 2.0)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(misses: &[u64], jobs: u64) -> Vec<Count> {
        misses.iter().map(|&misses| Count { misses, jobs }).collect()
    }

    #[test]
    fn the_exact_interval_equals_published_values() {
        // Clopper-Pearson: 0 of 43 is [0, 8.2 %], 10 of 100 is [4.9 %, 17.6 %].
        let none = exact(Count { misses: 0, jobs: 43 });
        assert!(none.low == 0.0 && (none.high - 0.0822).abs() < 5e-4, "{none:?}");
        let ten = exact(Count { misses: 10, jobs: 100 });
        assert!((ten.low - 0.0490).abs() < 5e-4 && (ten.high - 0.1762).abs() < 5e-4, "{ten:?}");
        assert_eq!(exact(Count::default()), Interval { low: 0.0, high: 1.0 });
    }

    #[test]
    fn misses_concentrated_in_one_round_widen_the_interval() {
        let even = proportion(&counts(&[10, 10, 10, 10], 100));
        let bursts = proportion(&counts(&[40, 0, 0, 0], 100));
        assert!(bursts.high > even.high + 0.05 && bursts.low < even.low, "{even:?} {bursts:?}");
    }

    #[test]
    fn without_misses_the_interval_still_extends_above_zero() {
        let interval = proportion(&counts(&[0, 0, 0], 200));
        assert!(interval.high > 0.004 && interval.high < 0.01, "{interval:?}");
    }

    #[test]
    fn a_ratio_lies_inside_its_interval_which_is_unbounded_without_misses() {
        let rounds: Vec<_> = counts(&[3, 5, 4], 500).into_iter().zip(counts(&[30, 45, 42], 500)).collect();
        let interval = ratio_of_misses(&rounds);
        let ratio = 12.0 / 117.0;
        assert!(interval.low < ratio && ratio < interval.high && interval.high < 0.25, "{interval:?}");
        let nothing: Vec<_> = counts(&[0, 0], 500).into_iter().zip(counts(&[0, 0], 500)).collect();
        assert_eq!(ratio_of_misses(&nothing), Interval { low: 0.0, high: f64::INFINITY });
    }

    #[test]
    fn the_interval_of_a_median_contains_it_and_needs_two_rounds() {
        let interval = median(&[1.0, 1.2, 1.1, 0.9]).unwrap();
        assert!(interval.low < 1.05 && 1.05 < interval.high && interval.low >= 0.9 && interval.high <= 1.2);
        assert_eq!(median(&[1.0]), None);
    }
}
