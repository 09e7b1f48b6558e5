//! Thresholds: a reading that crosses one is sent at once.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A limit with a hysteresis. A value that crossed the limit must return as far as `until` before it can cross
/// again, so that a value that fluctuates around the limit is reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Threshold {
    /// Crossed above `limit`; cleared at or below `until`.
    Above {
        /// In the attribute's unit.
        limit: i64,
        /// At most `limit`.
        until: i64,
    },
    /// Crossed below `limit`; cleared at or above `until`.
    Below {
        /// In the attribute's unit.
        limit: i64,
        /// At least `limit`.
        until: i64,
    },
}

impl Threshold {
    /// Above `limit`, with an eighth of it (at least 1) as hysteresis.
    pub const fn above(limit: i64) -> Threshold {
        Threshold::Above { limit, until: limit.saturating_sub(eighth(limit)) }
    }

    /// Below `limit`, with an eighth of it (at least 1) as hysteresis.
    pub const fn below(limit: i64) -> Threshold {
        Threshold::Below { limit, until: limit.saturating_add(eighth(limit)) }
    }

    /// Whether `value` is beyond the threshold, if the previous value was `beyond` it or not.
    pub const fn is_beyond(self, beyond: bool, value: i64) -> bool {
        match self {
            Threshold::Above { limit, until } => value > limit || (beyond && value > until),
            Threshold::Below { limit, until } => value < limit || (beyond && value < until),
        }
    }
}

const fn eighth(limit: i64) -> i64 {
    let eighth = limit.unsigned_abs() / 8;
    if eighth == 0 { 1 } else { eighth as i64 }
}

/// A text is not a threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a threshold; write `> 4`, `< 100M`, `> 80%`, or with the value that clears it `> 4 until 2` (k, M, G: \
     decimal; %: of a whole)"
)]
pub struct InvalidThreshold {
    /// The given text, cut to 100 characters.
    pub text: String,
}

impl FromStr for Threshold {
    type Err = InvalidThreshold;

    fn from_str(text: &str) -> Result<Threshold, InvalidThreshold> {
        parse(text).ok_or_else(|| InvalidThreshold { text: text.chars().take(100).collect() })
    }
}

fn parse(text: &str) -> Option<Threshold> {
    let text = text.trim();
    let above = match text.chars().next()? {
        '>' => true,
        '<' => false,
        _ => return None,
    };
    let (limit, until) = match text[1..].split_once("until") {
        Some((limit, until)) => (limit, Some(number(until)?)),
        None => (&text[1..], None),
    };
    let limit = number(limit)?;
    Some(match (above, until) {
        (true, None) => Threshold::above(limit),
        (false, None) => Threshold::below(limit),
        (true, Some(until)) if until <= limit => Threshold::Above { limit, until },
        (false, Some(until)) if until >= limit => Threshold::Below { limit, until },
        _ => return None,
    })
}

/// Parses a number with an optional scale.
fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    let scales = [('%', 1e4), ('k', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12)];
    let scaled = scales.into_iter().find_map(|(letter, scale)| Some((text.strip_suffix(letter)?, scale)));
    let Some((digits, scale)) = scaled else { return text.parse().ok() };
    let value = digits.trim().parse::<f64>().ok()? * scale;
    (value.is_finite() && value.abs() < 9e18).then_some(value.round() as i64)
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threshold::Above { limit, until } => write!(f, "> {limit} until {until}"),
            Threshold::Below { limit, until } => write!(f, "< {limit} until {until}"),
        }
    }
}

impl TryFrom<String> for Threshold {
    type Error = InvalidThreshold;

    fn try_from(text: String) -> Result<Threshold, InvalidThreshold> {
        text.parse()
    }
}

impl From<Threshold> for String {
    fn from(threshold: Threshold) -> String {
        threshold.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_and_full_forms_of_thresholds_are_parsed() {
        assert_eq!("> 4".parse(), Ok(Threshold::Above { limit: 4, until: 3 }));
        assert_eq!("<100M".parse(), Ok(Threshold::Below { limit: 100_000_000, until: 112_500_000 }));
        assert_eq!("> 80%".parse(), Ok(Threshold::Above { limit: 800_000, until: 700_000 }));
        assert_eq!("> 4 until 2".parse(), Ok(Threshold::Above { limit: 4, until: 2 }));
        assert_eq!("< -4 until 0".parse(), Ok(Threshold::Below { limit: -4, until: 0 }));
        for nonsense in
            ["", "4", ">", "= 4", "> 4 until 5", "< 4 until 3", "> 4 until", "> x", "> NaN%", "> 9e30M", "é4"]
        {
            let refusal = nonsense.parse::<Threshold>().unwrap_err().to_string();
            assert!(refusal.contains("is not a threshold"), "{nonsense}");
        }
    }

    #[test]
    fn a_value_inside_the_hysteresis_is_still_beyond() {
        let threshold = Threshold::Above { limit: 10, until: 8 };
        let mut beyond = false;
        let expected = [(10, false), (11, true), (10, true), (9, true), (8, false), (10, false), (11, true)];
        for (value, then) in expected {
            beyond = threshold.is_beyond(beyond, value);
            assert_eq!(beyond, then, "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_threshold_parses_to_itself(limit: i64, room in 0..i64::MAX, above: bool) {
            let threshold = match above {
                true => Threshold::Above { limit, until: limit.saturating_sub(room) },
                false => Threshold::Below { limit, until: limit.saturating_add(room) },
            };
            prop_assert_eq!(threshold.to_string().parse::<Threshold>(), Ok(threshold));
        }

        /// Between two crossings the value was at `until` or beyond it.
        #[test]
        fn a_threshold_is_not_crossed_twice_without_returning(values in prop::collection::vec(-20i64..20, 1..200), limit in -5i64..5, gap in 0i64..6) {
            let threshold = Threshold::Above { limit, until: limit - gap };
            let (mut beyond, mut low) = (false, true);
            for value in values {
                low |= value <= limit - gap;
                let then = threshold.is_beyond(beyond, value);
                prop_assert!(beyond || !then || (value > limit && low), "crossed again without returning");
                prop_assert!(!beyond || then || value <= limit - gap, "cleared too early");
                low &= !then;
                beyond = then;
            }
        }

        #[test]
        fn arbitrary_texts_are_parsed_or_refused(text in ".{0,40}") {
            let _ = text.parse::<Threshold>();
        }
    }
}
