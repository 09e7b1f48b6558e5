//! Parses and prints rates in bits per second; `100M` is 100 million bits per second.

use std::fmt;
use std::str::FromStr;

const UNITS: [(&str, u64); 3] = [("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate(pub u64);

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is not a rate in bits per second, such as 800k, 100M or 2.5G");
        let number = text.trim_end_matches("bit").trim_end_matches(['k', 'M', 'G']);
        let unit = text.trim_end_matches("bit").strip_prefix(number).unwrap_or_default();
        let unit = match unit {
            "" => 1,
            unit => UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?.1,
        };
        let value: f64 = number.parse().map_err(|_| refused())?;
        let bits = value * unit as f64;
        if (1.0..1e15).contains(&bits) { Ok(Rate(bits as u64)) } else { Err(refused()) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = UNITS.into_iter().rev().find(|(_, unit)| self.0 >= *unit).unwrap_or(("", 1));
        f.pad(&format!("{}{name}bit/s", (self.0 as f64 / unit as f64 * 1000.0).round() / 1000.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_parsed_with_its_unit() {
        for (text, bits) in [("800k", 800_000), ("100M", 100_000_000), ("2.5G", 2_500_000_000), ("64000bit", 64_000)] {
            assert_eq!(text.parse(), Ok(Rate(bits)));
        }
        for text in ["", "fast", "-1M", "0", "1T", "1kM", "NaN"] {
            assert!(text.parse::<Rate>().unwrap_err().contains("100M"), "{text}");
        }
    }

    #[test]
    fn a_rate_is_printed_with_the_largest_fitting_unit() {
        assert_eq!(Rate(2_500_000_000).to_string(), "2.5Gbit/s");
        assert_eq!(Rate(999).to_string(), "999bit/s");
    }
}
