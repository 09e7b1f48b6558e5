//! Rates, fractions and ranges of the application's language.

use std::fmt;

use qfabric_types::Nanos;

/// A rate of frames in millionths of a frame per second: 29.97 frames/s is 29 970 000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameRate(u64);

impl FrameRate {
    /// The lowest rate: its period is the longest that a reservation may have.
    pub const MIN: FrameRate = FrameRate(250_000);
    /// The highest rate: its period is the shortest that a reservation may have.
    pub const MAX: FrameRate = FrameRate(10_000_000_000);

    /// `None` outside [`FrameRate::MIN`] to [`FrameRate::MAX`].
    pub const fn from_micro(micro: u64) -> Option<FrameRate> {
        if micro >= Self::MIN.0 && micro <= Self::MAX.0 { Some(FrameRate(micro)) } else { None }
    }
    /// The nearest rate; `None` for NaN and for rates outside the limits.
    pub fn from_f64(rate: f64) -> Option<FrameRate> {
        Self::from_micro((rate * 1e6).round() as u64)
    }
    /// The highest rate whose period is at least `period`; limited to the allowed rates.
    pub fn with_period(period: Nanos) -> FrameRate {
        FrameRate((1_000_000_000_000_000 / period.get().max(1)).clamp(Self::MIN.0, Self::MAX.0))
    }
    pub const fn micro(self) -> u64 {
        self.0
    }
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// T = 1/R_A (§3.4), rounded down: a shorter period asks for more.
    pub const fn period(self) -> Nanos {
        Nanos::new(1_000_000_000_000_000 / self.0)
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.as_f64())
    }
}

/// A part of a whole in millionths, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fraction(u32);

impl Fraction {
    pub const ZERO: Fraction = Fraction(0);
    pub const ONE: Fraction = Fraction(1_000_000);

    /// The nearest fraction; `None` for NaN and for numbers outside 0 to 1.
    pub fn from_f64(value: f64) -> Option<Fraction> {
        (0.0..=1.0).contains(&value).then(|| Fraction((value * 1e6).round() as u32))
    }
    /// `part / whole`, rounded up; one if `part` is larger, zero if both are zero.
    pub fn of(part: u64, whole: u64) -> Fraction {
        Fraction((part as u128 * 1_000_000).div_ceil(whole.max(1) as u128).min(1_000_000) as u32)
    }
    pub const fn millionths(self) -> u32 {
        self.0
    }
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// This part of `amount`, rounded down.
    pub fn part_of(self, amount: u64) -> u64 {
        (amount as u128 * self.0 as u128 / 1_000_000) as u64
    }
    /// `amount` and this part of it, rounded up.
    pub fn added_to(self, amount: u64) -> u64 {
        (amount as u128 * (1_000_000 + self.0 as u128)).div_ceil(1_000_000) as u64
    }
}

/// The two forms of a quality parameter that QualMan uses (§2.1): the single value QoS_ave, or (QoS_min, QoS_max).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range<T> {
    Average(T),
    Between { min: T, max: T },
}

impl<T: Copy + Ord> Range<T> {
    pub fn min(self) -> T {
        match self {
            Range::Average(value) | Range::Between { min: value, .. } => value,
        }
    }
    pub fn max(self) -> T {
        match self {
            Range::Average(value) | Range::Between { max: value, .. } => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_player_of_40_frames_per_second_has_a_period_of_25_ms() {
        let rate = FrameRate::from_f64(40.0).unwrap();
        assert_eq!(rate.period(), Nanos::from_millis(25)); // the example of §3.4
        assert_eq!(FrameRate::with_period(rate.period()), rate);
    }

    #[test]
    fn rates_without_a_meaning_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 0.1, 10_001.0] {
            assert_eq!(FrameRate::from_f64(rate), None, "{rate}");
        }
        for fraction in [-0.1, 1.1, f64::NAN] {
            assert_eq!(Fraction::from_f64(fraction), None, "{fraction}");
        }
    }
}
