//! Quantities: times in nanoseconds, shares of the processor in millionths of one CPU, amounts of memory in bytes,
//! rates in bits per second.

mod bit_rate;
mod bytes;

pub use bit_rate::BitRate;
pub use bytes::Bytes;

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Nanos(u64);

impl Nanos {
    pub const ZERO: Nanos = Nanos(0);
    pub const MAX: Nanos = Nanos(u64::MAX);

    pub const fn new(ns: u64) -> Self {
        Nanos(ns)
    }
    pub const fn from_micros(us: u64) -> Self {
        Nanos(us * 1_000)
    }
    pub const fn from_millis(ms: u64) -> Self {
        Nanos(ms * 1_000_000)
    }
    /// The nearest time to `ns`; negative numbers and NaN give zero.
    pub fn from_f64(ns: f64) -> Self {
        Nanos(ns.round() as u64)
    }
    pub const fn get(self) -> u64 {
        self.0
    }
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// The difference; zero if `other` is longer.
    pub const fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
    /// `n` times this time, at most [`Nanos::MAX`].
    pub const fn saturating_mul(self, n: u64) -> Nanos {
        Nanos(self.0.saturating_mul(n))
    }
}

impl Nanos {
    /// The time as text in the largest unit that gives a short decimal: `40ms`, `33.366704ms`. Unlike
    /// [`Display`](fmt::Display), which rounds, this text parses without loss.
    pub fn exact(self) -> String {
        let scales = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let fits = |scale: u64| self.0 >= scale && (scale != 1_000_000_000 || self.0.is_multiple_of(scale));
        let Some((scale, unit)) = scales.into_iter().find(|(scale, _)| fits(*scale)) else {
            return format!("{}ns", self.0);
        };
        let digits = scale.ilog10() as usize;
        let text = format!("{}.{:0digits$}", self.0 / scale, self.0 % scale);
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        self.saturating_sub(other)
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Nanos) {
        *self = *self - other;
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            // Zero needs no particular unit; times are mostly typed in milliseconds.
            0 => "0 ms".to_owned(),
            ns if ns < 1_000 => format!("{ns} ns"),
            ns if ns < 1_000_000 => format!("{} µs", trimmed(ns as f64 / 1e3)),
            ns if ns < 1_000_000_000 => format!("{} ms", trimmed(ns as f64 / 1e6)),
            ns => format!("{} s", trimmed(ns as f64 / 1e9)),
        };
        f.pad(&text)
    }
}

/// At most three decimals, without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A text is not a quantity of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct InvalidQuantity {
    pub text: String,
    /// The accepted form, with an example.
    pub expected: &'static str,
}

impl FromStr for Nanos {
    type Err = InvalidQuantity;

    /// Accepts `40ms`, `2.5ms`, `800us`, `1s`. Refuses a bare number, because its unit would be a guess.
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let refused = || InvalidQuantity {
            text: text.to_owned(),
            expected: "a time with its unit, such as 40ms, 2.5ms or 800us",
        };
        let trimmed = text.trim();
        let unit_at = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(refused)?;
        let (number, unit) = trimmed.split_at(unit_at);
        let scale = match unit.trim() {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(refused()),
        };
        let ns = number.parse::<f64>().map_err(|_| refused())? * scale;
        if ns.is_finite() && ns <= 1e18 { Ok(Nanos::from_f64(ns)) } else { Err(refused()) }
    }
}

/// A time in nanoseconds since a fixed but unspecified origin: `CLOCK_MONOTONIC` on a real host, the virtual clock
/// in a simulation. Never wall-clock time, so a stepped clock changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Instant(u64);

impl Instant {
    pub const ZERO: Instant = Instant(0);
    /// Later than every real time.
    pub const NEVER: Instant = Instant(u64::MAX);

    pub const fn new(ns: u64) -> Self {
        Instant(ns)
    }
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The time from `earlier` to this time; zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
    /// Signed distance from `other` in nanoseconds; positive if `self` is later.
    pub const fn signed_since(self, other: Instant) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }
}

impl Add<Nanos> for Instant {
    type Output = Instant;
    fn add(self, by: Nanos) -> Instant {
        Instant(self.0.saturating_add(by.0))
    }
}

impl Sub<Nanos> for Instant {
    type Output = Instant;
    fn sub(self, by: Nanos) -> Instant {
        Instant(self.0.saturating_sub(by.0))
    }
}

/// A share of the processor in millionths of one CPU: 0.25 CPU is 250 000. May exceed one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    pub const ZERO: Share = Share(0);
    pub const ONE: Share = Share(1_000_000);
    /// The largest share that is parsed: 4096 CPUs; a larger number is a mistake or an attack.
    pub const MAX: Share = Share(4_096_000_000);

    pub const fn from_ppm(ppm: u32) -> Self {
        Share(ppm)
    }
    pub const fn ppm(self) -> u32 {
        self.0
    }
    /// `budget / period`, rounded up: for counting a promise.
    pub fn of_budget(budget: Nanos, period: Nanos) -> Self {
        let ppm = (budget.0 as u128 * 1_000_000).div_ceil(period.0.max(1) as u128);
        Share(ppm.min(u32::MAX as u128) as u32)
    }
    /// The budget of this share in `period`, rounded down: for handing out.
    pub fn budget_in(self, period: Nanos) -> Nanos {
        Nanos((self.0 as u128 * period.0 as u128 / 1_000_000).min(u64::MAX as u128) as u64)
    }
    /// The nearest share to `cpus`; negative numbers and NaN give zero.
    pub fn from_f64(cpus: f64) -> Self {
        Share((cpus * 1e6).round() as u32)
    }
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// As a part of a resource other than the processor, such as a link: `5 %`.
    pub fn percent(self) -> String {
        format!("{} %", trimmed(100.0 * self.as_f64()))
    }
    /// The difference; zero if `other` is larger.
    pub const fn saturating_sub(self, other: Share) -> Share {
        Share(self.0.saturating_sub(other.0))
    }
}

impl Add for Share {
    type Output = Share;
    fn add(self, other: Share) -> Share {
        Share(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Share {
    fn add_assign(&mut self, other: Share) {
        *self = *self + other;
    }
}

impl Sub for Share {
    type Output = Share;
    fn sub(self, other: Share) -> Share {
        self.saturating_sub(other)
    }
}

impl std::iter::Sum for Share {
    fn sum<I: Iterator<Item = Share>>(shares: I) -> Share {
        shares.fold(Share::ZERO, Add::add)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} CPU", trimmed(self.as_f64())))
    }
}

impl FromStr for Share {
    type Err = InvalidQuantity;

    /// Accepts `0.4` or `40%` of one CPU, and the printed form `0.4 CPU`.
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let refused = || InvalidQuantity { text: text.to_owned(), expected: "a share of one CPU, such as 0.4 or 40%" };
        let trimmed = text.trim();
        let (number, scale) = match trimmed.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 0.01),
            None => (trimmed.strip_suffix("CPU").unwrap_or(trimmed).trim_end(), 1.0),
        };
        let cpus = number.parse::<f64>().map_err(|_| refused())? * scale;
        if (0.0..=Share::MAX.as_f64()).contains(&cpus) { Ok(Share::from_f64(cpus)) } else { Err(refused()) }
    }
}

impl Serialize for Share {
    /// As a number of CPUs, the unit of all interfaces.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let cpus = f64::deserialize(deserializer)?;
        if (0.0..=Share::MAX.as_f64()).contains(&cpus) {
            Ok(Share::from_f64(cpus))
        } else {
            Err(serde::de::Error::custom(format!("share {cpus} is not between 0 and {}", Share::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the fuzzer.
    #[test]
    fn a_printed_share_parses_to_itself() {
        for share in [Share::ZERO, Share::from_ppm(400_000), Share::from_ppm(3_660_000)] {
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        let longest: Nanos = "999999999.9999s".parse().unwrap();
        assert!(longest.to_string().parse::<Nanos>().is_ok());
    }

    #[test]
    fn a_time_without_a_unit_is_refused() {
        assert_eq!("40ms".parse(), Ok(Nanos::from_millis(40)));
        assert_eq!("2.5ms".parse(), Ok(Nanos::new(2_500_000)));
        assert_eq!(" 800us".parse(), Ok(Nanos::from_micros(800)));
        for nonsense in ["", "40", "ms", "-3ms", "1e99s", "4 parsecs", "nanms", "..ms"] {
            assert!(nonsense.parse::<Nanos>().is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn a_time_is_printed_in_a_readable_unit() {
        assert_eq!(Nanos::new(2_500_000).to_string(), "2.5 ms");
        assert_eq!(Nanos::new(999).to_string(), "999 ns");
        assert_eq!(Nanos::ZERO.to_string(), "0 ms");
        assert_eq!(Nanos::from_millis(40_000).to_string(), "40 s");
    }

    #[test]
    fn an_exact_time_has_a_short_unit_and_parses_without_loss() {
        let typed =
            [(40_000_000, "40ms"), (33_366_704, "33.366704ms"), (100_000, "100us"), (2_500, "2.5us"), (999, "999ns")];
        for (ns, text) in typed.into_iter().chain([(0, "0ns"), (2_000_000_000, "2s"), (1_500_000_001, "1500.000001ms")])
        {
            assert_eq!(Nanos::new(ns).exact(), text);
            assert_eq!(text.parse(), Ok(Nanos::new(ns)));
        }
    }

    #[test]
    fn shares_are_parsed_as_fractions_or_per_cent() {
        assert_eq!("0.4".parse(), Ok(Share::from_ppm(400_000)));
        assert_eq!("40%".parse(), Ok(Share::from_ppm(400_000)));
        for nonsense in ["", "-1", "NaN", "inf", "forty", "1e9"] {
            assert!(nonsense.parse::<Share>().is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn a_part_of_a_link_is_printed_in_per_cent() {
        assert_eq!(Share::from_ppm(50_000).percent(), "5 %");
        assert_eq!(Share::from_ppm(123_400).percent(), "12.34 %");
        assert_eq!(Share::from_ppm(50_000).percent().parse(), Ok(Share::from_ppm(50_000)));
    }

    #[test]
    fn counting_a_promise_never_undercounts_it() {
        let period = Nanos::new(3_000_001);
        for ns in [1, 7, 1_000_000, 2_999_999] {
            let budget = Nanos::new(ns);
            assert!(Share::of_budget(budget, period).budget_in(period) >= budget || ns < 4);
            assert!(Share::of_budget(budget, period).as_f64() >= ns as f64 / 3_000_001.0);
        }
    }
}
