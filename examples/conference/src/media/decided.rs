//! The levels that a policy of this host's daemon decides: `app.level`, one dimension at a time.
//!
//! | dimension | amount |
//! |---|---|
//! | `quality` | a quality of the first level's codec; another codec gets the same part of its best quality |
//! | `size` | the width in pixels; the height follows from the first level's aspect ratio |
//! | `codec` | 0 (JPEG), 1 (H.261) or 2 (H.264), as in events |

use anyhow::{Context, Result, bail};
use qfabric_types::Instant;

use super::adapt::{Foreign, scaled};
use crate::{Codec, Level, Size};

/// What was decided for each dimension; the first level has the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecidedLevel {
    first: Level,
    quality: u8,
    size: Size,
    codec: Codec,
    /// The level that followed from the last decision.
    level: Option<Level>,
    foreign: Foreign,
}

impl DecidedLevel {
    pub(super) fn new(first: Level) -> DecidedLevel {
        let (quality, size, codec, foreign) = (first.quality(), first.size(), first.codec(), Foreign::default());
        DecidedLevel { first, quality, size, codec, level: None, foreign }
    }

    /// A decision about one dimension. Returns the level that follows from all decisions.
    ///
    /// # Errors
    /// The dimension or the amount does not exist; or the level does not, but may after a decision about another dimension.
    pub(super) fn on_decision(&mut self, dimension: &str, amount: i64) -> Result<Level> {
        let first = self.first;
        let refused = || format!("a policy decided {dimension} {amount}, which the conference does not have");
        match dimension {
            "quality" => self.quality = u8::try_from(amount).with_context(refused)?,
            "size" => {
                let width = u16::try_from(amount).with_context(refused)?;
                self.size = first.size().with_width(width).with_context(refused)?;
            }
            "codec" => {
                let codec = u8::try_from(amount).ok().and_then(Codec::from_number);
                self.codec = codec.with_context(|| format!("{}; use 0 (jpeg), 1 (h261) or 2 (h264)", refused()))?;
            }
            _ => bail!("{}; use the dimensions quality, size (the width) and codec", refused()),
        }
        let level = scaled(self.quality, first.codec(), self.codec, self.size).with_context(refused)?;
        self.level = Some(level);
        Ok(level)
    }

    /// The decided level, if another one has been in force for 30 s: policies tell each decision once.
    pub(super) fn again(&mut self, in_force: Level, now: Instant) -> Option<Level> {
        let is_foreign = self.level.is_some_and(|level| level != in_force);
        self.level.filter(|_| self.foreign.is_over(is_foreign, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_about_dimensions_make_one_level() {
        let mut decided = DecidedLevel::new("jpeg:80:640x480".parse().unwrap());
        for (dimension, amount, level) in [
            ("quality", 19, "jpeg:19:640x480"),
            ("size", 352, "jpeg:19:352x264"),
            ("size", 320, "jpeg:19:320x240"),
            ("codec", 2, "h264:6:320x240"),
            ("quality", 95, "h264:30:320x240"),
        ] {
            assert_eq!(decided.on_decision(dimension, amount).unwrap().to_string(), level);
        }
    }

    #[test]
    fn a_decided_level_is_set_again_30_seconds_after_somebody_set_another_one() {
        let first: Level = "jpeg:80:640x480".parse().unwrap();
        let mut decided = DecidedLevel::new(first);
        let at = |second: u64| Instant::new(second * 1_000_000_000);
        assert!((0..100).all(|second| decided.again(first, at(second)).is_none()), "nothing was decided");
        let level = decided.on_decision("quality", 20).unwrap();
        assert_eq!((100..130).find_map(|second| decided.again(first, at(second))), None);
        assert_eq!(decided.again(first, at(130)), Some(level));
        assert!((131..200).all(|second| decided.again(level, at(second)).is_none()), "it is in force");
    }

    #[test]
    fn a_decision_that_is_no_level_is_refused_with_what_exists() {
        let mut decided = DecidedLevel::new("jpeg:80:704x576".parse().unwrap());
        for (dimension, amount, said) in [
            ("quality", 96, "1 to 95"),
            ("quality", -1, "quality -1"),
            ("size", 100, "176x144"),
            ("size", 70_000, "size 70000"),
            ("codec", 3, "0 (jpeg)"),
            ("transcoders", 1, "quality, size"),
        ] {
            let refusal = format!("{:#}", decided.on_decision(dimension, amount).unwrap_err());
            assert!(refusal.contains(said), "{dimension} {amount}: {refusal}");
        }
        decided.on_decision("quality", 95).unwrap();
        let passing = format!("{:#}", decided.on_decision("codec", 1).unwrap_err());
        assert!(passing.contains("h261 at 704x576"), "{passing}");
        assert_eq!(decided.on_decision("size", 352).unwrap().to_string(), "h261:30:352x288", "and is complete later");
    }
}
