//! Rates in bits per second.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Bytes, InvalidQuantity, Nanos, trimmed};

/// A rate in bits per second; `100M` is 100 million bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct BitRate(u64);

const UNITS: [(&str, u64); 4] = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000), ("", 1)];

impl BitRate {
    pub const ZERO: BitRate = BitRate(0);
    /// The largest rate that is parsed: 1 Pbit/s; a larger number is a mistake or an attack.
    pub const MAX: BitRate = BitRate(1_000_000_000_000_000);

    pub const fn new(bits_per_second: u64) -> Self {
        BitRate(bits_per_second)
    }
    pub const fn get(self) -> u64 {
        self.0
    }
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// The rate at which `amount` takes `time`, rounded up: for counting a promise.
    pub fn of(amount: Bytes, time: Nanos) -> Self {
        let bits = (amount.get() as u128 * 8_000_000_000).div_ceil(time.get().max(1) as u128);
        BitRate(bits.min(u64::MAX as u128) as u64)
    }
    /// The time that `amount` takes at this rate, rounded up; [`Nanos::MAX`] at rate zero.
    pub fn time_for(self, amount: Bytes) -> Nanos {
        if self.0 == 0 {
            return Nanos::MAX;
        }
        Nanos::new((amount.get() as u128 * 8_000_000_000).div_ceil(self.0 as u128).min(u64::MAX as u128) as u64)
    }
    /// The difference; zero if `other` is larger.
    pub const fn saturating_sub(self, other: BitRate) -> BitRate {
        BitRate(self.0.saturating_sub(other.0))
    }
}

impl Add for BitRate {
    type Output = BitRate;
    fn add(self, other: BitRate) -> BitRate {
        BitRate(self.0.saturating_add(other.0))
    }
}

impl AddAssign for BitRate {
    fn add_assign(&mut self, other: BitRate) {
        *self = *self + other;
    }
}

impl Sub for BitRate {
    type Output = BitRate;
    fn sub(self, other: BitRate) -> BitRate {
        self.saturating_sub(other)
    }
}

impl Sum for BitRate {
    fn sum<I: Iterator<Item = BitRate>>(rates: I) -> BitRate {
        rates.fold(BitRate::ZERO, Add::add)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = UNITS.into_iter().find(|(_, unit)| self.0 >= *unit).unwrap_or(("", 1));
        f.pad(&format!("{} {name}bit/s", trimmed(self.0 as f64 / unit as f64)))
    }
}

impl FromStr for BitRate {
    type Err = InvalidQuantity;

    /// Accepts `800k`, `100M`, `2.5G`, `64000bit`, and the printed form `100 Mbit/s`. Refuses zero.
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let refused = || InvalidQuantity {
            text: text.chars().take(40).collect(),
            expected: "a rate from 1 bit/s to 1 Pbit/s, such as 800k, 100M or 2.5G",
        };
        let whole = text.trim();
        let unit_at = whole.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(whole.len());
        let (number, unit) = whole.split_at(unit_at);
        let unit = unit.trim().trim_end_matches("/s").trim_end_matches("bit");
        let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?.1;
        let bits = number.parse::<f64>().map_err(|_| refused())? * scale as f64;
        if (1.0..=BitRate::MAX.as_f64()).contains(&bits) { Ok(BitRate(bits.round() as u64)) } else { Err(refused()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_parsed_with_its_unit() {
        for (text, bits) in [("800k", 800_000), ("100M", 100_000_000), ("2.5G", 2_500_000_000), ("64000bit", 64_000)] {
            assert_eq!(text.parse(), Ok(BitRate(bits)));
        }
        for text in ["", "fast", "-1M", "0", "1T", "1kM", "NaN", "M", "1000001G"] {
            let refusal = text.parse::<BitRate>().unwrap_err().to_string();
            assert!(refusal.contains(text) && refusal.contains("1 bit/s to 1 Pbit/s, such as"), "{refusal}");
            assert!(refusal.contains("100M"), "{refusal}");
        }
    }

    #[test]
    fn a_printed_rate_parses_to_itself() {
        for bits in [1, 999, 64_000, 2_500_000_000] {
            assert_eq!(BitRate(bits).to_string().parse(), Ok(BitRate(bits)));
        }
        assert_eq!(BitRate(2_500_000_000).to_string(), "2.5 Gbit/s");
    }

    #[test]
    fn a_rate_and_a_time_are_rounded_against_the_one_who_asks() {
        let (amount, time) = (Bytes::new(1_000), Nanos::from_millis(3));
        assert_eq!(BitRate::of(amount, time), BitRate(2_666_667));
        assert_eq!(BitRate(3).time_for(Bytes::new(1)), Nanos::new(2_666_666_667));
        assert_eq!(BitRate::ZERO.time_for(amount), Nanos::MAX);
    }
}
