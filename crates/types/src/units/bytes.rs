//! Amounts of memory in bytes.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{InvalidQuantity, trimmed};

/// An amount of memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Bytes(u64);

/// The units, smallest first. As in systemd and Docker, a letter alone is a power of 1024.
const UNITS: [(&str, u64); 12] = [
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl Bytes {
    pub const ZERO: Bytes = Bytes(0);
    /// The largest amount that is parsed: 1 PiB; a larger number is a mistake or an attack.
    pub const MAX: Bytes = Bytes(1 << 50);

    pub const fn new(bytes: u64) -> Self {
        Bytes(bytes)
    }
    pub const fn from_mib(mib: u64) -> Self {
        Bytes(mib << 20)
    }
    pub const fn get(self) -> u64 {
        self.0
    }
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// The difference; zero if `other` is larger.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
    /// The next multiple of `page`: for counting a promise that is kept in whole pages.
    pub const fn round_up(self, page: u64) -> Bytes {
        Bytes(self.0.div_ceil(page).saturating_mul(page))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        self.saturating_sub(other)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(amounts: I) -> Bytes {
        amounts.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printed = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let text = match printed.into_iter().find(|(_, unit)| self.0 >= *unit) {
            Some((name, unit)) => format!("{} {name}", trimmed(self.0 as f64 / unit as f64)),
            None => format!("{} B", self.0),
        };
        f.pad(&text)
    }
}

impl FromStr for Bytes {
    type Err = InvalidQuantity;

    /// Accepts `64M`, `64MiB`, `1.5G`, `500kB`, `76800`, and the printed form `64 MiB`.
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let refused = || InvalidQuantity {
            text: text.chars().take(40).collect(),
            expected: "an amount of memory up to 1024 TiB, such as 64M, 1.5G or 500kB",
        };
        let whole = text.trim();
        let unit_at = whole.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(whole.len());
        let (number, unit) = whole.split_at(unit_at);
        let scale = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(refused)?.1;
        let bytes = number.parse::<f64>().map_err(|_| refused())? * scale as f64;
        if (0.0..=Bytes::MAX.as_f64()).contains(&bytes) { Ok(Bytes(bytes.round() as u64)) } else { Err(refused()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_parsed_with_its_unit() {
        for (text, bytes) in [("64M", 64 << 20), ("1.5GiB", 3 << 29), ("500kB", 500_000), ("76800", 76_800)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        for nonsense in ["", "M", "-1M", "64Q", "1e9", "NaN", "64MM", "2000TiB", "1.2.3M"] {
            assert!(nonsense.parse::<Bytes>().is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn a_printed_amount_parses_to_itself() {
        for bytes in [0, 1023, 1 << 10, 64 << 20, 3 << 29, 1 << 40] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
        assert_eq!(Bytes::from_mib(64).to_string(), "64 MiB");
    }

    #[test]
    fn a_promise_is_counted_in_whole_pages() {
        assert_eq!(Bytes(4097).round_up(4096), Bytes(8192));
        assert_eq!(Bytes::ZERO.round_up(4096), Bytes::ZERO);
    }
}
