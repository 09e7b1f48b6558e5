//! Application adaptation in the server: a ladder of levels that follows the rate at the median receiver.
//!
//! Source: 000 §5.3, where the server's quality follows the rate that the client shows. Departure: the ladder of the
//! client library (design page 0044), which gives up further dimensions and does not oscillate.

use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use qfabric_client::Ladder;
use qfabric_client::ladder::{Dimension, Terms};
use qfabric_client::relief::Relief;
use qfabric_types::{Instant, Nanos};

use crate::{Codec, Level, Size};

/// A level that somebody else set stays for this time; then the decided one is set again. Anyone may send levels.
const FOREIGN: Nanos = Nanos::from_millis(30_000);

/// Since when a level is in force that is not the one that the ladder, or a policy, decided.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Foreign(Option<Instant>);

impl Foreign {
    /// Whether the decided level has to be set again.
    pub(super) fn is_over(&mut self, is_foreign: bool, now: Instant) -> bool {
        self.0 = self.0.or(Some(now)).filter(|_| is_foreign);
        let is_over = self.0.is_some_and(|since| now.since(since) >= FOREIGN);
        self.0 = self.0.filter(|_| !is_over);
        is_over
    }
}

/// What a server may give up, with its values from the best to the minimum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concession {
    /// Qualities of the first level's codec; another codec gets the same part of its best quality.
    Quality(Vec<u8>),
    /// Sizes of the pictures.
    Size(Vec<Size>),
    /// Codecs.
    Codec(Vec<Codec>),
}

impl Concession {
    fn name(&self) -> &'static str {
        match self {
            Concession::Quality(_) => "quality",
            Concession::Size(_) => "size",
            Concession::Codec(_) => "codec",
        }
    }

    fn len(&self) -> usize {
        match self {
            Concession::Quality(values) => values.len(),
            Concession::Size(values) => values.len(),
            Concession::Codec(values) => values.len(),
        }
    }

    /// The same without codecs that are not in `codecs`. None: nothing is left.
    #[must_use]
    pub fn limited_to(self, codecs: &[Codec]) -> Option<Concession> {
        let Concession::Codec(wanted) = self else { return Some(self) };
        let left: Vec<Codec> = wanted.into_iter().filter(|codec| codecs.contains(codec)).collect();
        (!left.is_empty()).then_some(Concession::Codec(left))
    }
}

impl FromStr for Concession {
    type Err = anyhow::Error;

    /// `quality=75,60,45`, `size=640x480,320x240` or `codec=jpeg,h264`.
    fn from_str(text: &str) -> Result<Concession> {
        let example = "use quality=75,60,45, size=640x480,320x240 or codec=jpeg,h264, from the best to the minimum";
        let (name, values) = text.split_once('=').context(example)?;
        let values = values.split(',').map(str::trim);
        Ok(match name {
            "quality" => {
                let quality = |value: &str| value.parse().with_context(|| format!("{value:?} is not a quality"));
                Concession::Quality(values.map(quality).collect::<Result<_>>()?)
            }
            "size" => Concession::Size(values.map(str::parse).collect::<Result<_, _>>()?),
            "codec" => Concession::Codec(values.map(str::parse).collect::<Result<_, _>>()?),
            _ => bail!("{name:?} cannot be given up; {example}"),
        })
    }
}

/// The level of each rung, and the ladder that chooses one.
#[derive(Clone, Debug)]
pub struct LevelLadder {
    ladder: Ladder,
    /// The delays at the receivers, which show that a limit has ended.
    relief: Relief<String>,
    levels: Vec<Level>,
    foreign: Foreign,
}

impl LevelLadder {
    /// Begins with the first value of each concession; `first` has the rest. The first concession is given up first.
    /// `rate` is wanted, in pictures per second.
    ///
    /// # Errors
    /// A rung is not a level that exists, or a dimension is named twice.
    pub fn new(first: Level, concessions: &[Concession], rate: f64) -> Result<LevelLadder> {
        for (at, one) in concessions.iter().enumerate() {
            let twice = concessions[..at].iter().any(|other| other.name() == one.name());
            ensure!(!twice, "--adapt {} is given twice; name all its values once", one.name());
        }
        let numbers = |one: &Concession| (0..one.len() as i64).collect::<Vec<_>>();
        let dimensions = concessions.iter().map(|one| Dimension::new(one.name(), &numbers(one))).collect();
        let ladder = Ladder::new(dimensions, Terms::new(rate))?;
        let level = |rung: usize| -> Result<Level> {
            let values: Vec<i64> = ladder.levels_at(rung).map(|(_, value)| value).collect();
            conceded(first, concessions, &values).with_context(|| format!("rung {rung} of --adapt"))
        };
        let levels = (0..=ladder.lowest()).map(level).collect::<Result<_>>()?;
        let relief = Relief::new(ladder.terms().period());
        Ok(LevelLadder { ladder, relief, levels, foreign: Foreign::default() })
    }

    /// The present level.
    pub fn level(&self) -> Level {
        self.levels[self.ladder.rung()]
    }

    /// What a level is worth: 1 at the best rung, a half at the minimum, as `policy why` counts it. Any other level
    /// has the worth of the best rung whose quality and size are not above its own; below the minimum, 0.
    pub fn worth(&self, level: Level) -> f64 {
        let is_rung = |rung: &Level| *rung == level || rung.as_jpeg() == level;
        let reaches = |rung: &Level| level.quality_part() >= rung.quality_part() && level.size().contains(rung.size());
        let rung = self.levels.iter().position(is_rung).or_else(|| self.levels.iter().position(reaches));
        rung.map_or(0.0, |rung| 1.0 - rung as f64 / (2.0 * self.ladder.lowest().max(1) as f64))
    }

    /// Forgets the receivers that have left.
    pub fn retain_receivers(&mut self, is_here: impl Fn(&str) -> bool) {
        self.relief.retain(|receiver| is_here(receiver));
    }

    /// The least delay of a picture to a receiver in the last second, in nanoseconds, with any constant error.
    pub fn on_delay(&mut self, receiver: &str, delay_ns: i64, now: Instant) {
        self.relief.on_delay(&receiver.to_owned(), delay_ns as f64, now);
    }

    /// The rate of the last second, in pictures per second, and the level in force. Returns the level to set, if it
    /// has to be set: after a step, or if the level in force has not been the ladder's for 30 s.
    pub fn on_rate(&mut self, achieved: f64, in_force: Level, now: Instant) -> Option<Level> {
        if self.relief.is_there(now) {
            self.ladder.relieve(now);
        }
        let is_over = self.foreign.is_over(in_force != self.level(), now);
        let has_moved = self.ladder.on_rate(achieved, now).is_some();
        if has_moved || is_over {
            self.relief.reset();
            return Some(self.level());
        }
        None
    }
}

/// `first` with the values of these numbers.
fn conceded(first: Level, concessions: &[Concession], numbers: &[i64]) -> Result<Level> {
    let (mut codec, mut quality, mut size) = (first.codec(), first.quality(), first.size());
    for (one, number) in concessions.iter().zip(numbers) {
        let number = *number as usize;
        match one {
            Concession::Quality(values) => quality = values[number],
            Concession::Size(values) => size = values[number],
            Concession::Codec(values) => codec = values[number],
        }
    }
    // Whose quality it is: that of `first`, or of the best codec that is named with qualities.
    let named = concessions.iter().find_map(|one| match one {
        Concession::Codec(values) => values.first().copied(),
        _ => None,
    });
    let is_own = !concessions.iter().any(|one| matches!(one, Concession::Quality(_)));
    scaled(quality, named.filter(|_| !is_own).unwrap_or(first.codec()), codec, size)
}

/// A level of `codec` with the same part of its best quality as `quality` is of the best one of `scale`.
pub(super) fn scaled(quality: u8, scale: Codec, codec: Codec, size: Size) -> Result<Level> {
    let best = u32::from(scale.best_quality());
    let scaled = (u32::from(quality) * u32::from(codec.best_quality())).div_ceil(best);
    Ok(Level::new(codec, u8::try_from(scaled).unwrap_or(u8::MAX), size)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(texts: &[&str]) -> Result<LevelLadder> {
        let all: Vec<Concession> = texts.iter().map(|text| text.parse()).collect::<Result<_>>()?;
        LevelLadder::new("jpeg:90:small".parse()?, &all, 20.0)
    }

    #[test]
    fn quality_then_size_then_codec_are_given_up_and_come_back() {
        let mut ladder = ladder(&["quality=95,19", "size=352x288,176x144", "codec=jpeg,h264"]).unwrap();
        assert_eq!((ladder.level().to_string().as_str(), ladder.worth(ladder.level())), ("jpeg:95:352x288", 1.0));
        let at = |second: u64| Instant::ZERO + Nanos::from_millis(1_000 * second);
        let mut seen: Vec<String> = Vec::new();
        for second in 0..400 {
            let rate = if second < 40 { 16.0 } else { 20.0 };
            seen.extend(ladder.on_rate(rate, ladder.level(), at(second)).map(|level| level.to_string()));
        }
        let (down, up) = seen.split_at(3);
        assert_eq!(down, ["jpeg:19:352x288", "jpeg:19:176x144", "h264:6:176x144"]);
        assert_eq!(up, ["jpeg:19:176x144", "jpeg:19:352x288", "jpeg:95:352x288"]);
    }

    #[test]
    fn a_shorter_delay_brings_the_levels_back_soon() {
        let mut ladder = ladder(&["quality=95,75,50,25"]).unwrap();
        let at = |second: u64| Instant::ZERO + Nanos::from_millis(1_000 * second);
        let mut back = None;
        for second in 0..250 {
            let worth = ladder.worth(ladder.level());
            let (is_narrow, is_best) = (second < 150, worth == 1.0);
            ladder.on_delay("h/1", if is_narrow { 45_000_000 } else { 9_000_000 }, at(second));
            let rate = if is_narrow && worth > 0.6 { 15.0 } else { 20.0 };
            let level = ladder.on_rate(rate, ladder.level(), at(second));
            let best = level.filter(|level| !is_narrow && !is_best && ladder.worth(*level) == 1.0);
            back = back.or(best.map(|_| second));
        }
        assert!(
            back.is_some_and(|second| second <= 180),
            "the best level is back at second {back:?}, not 30 s after 150"
        );
    }

    #[test]
    fn a_level_of_somebody_else_counts_as_it_is_and_stays_for_30_seconds() {
        let mut ladder = ladder(&["quality=95,75,50", "size=640x480,352x288"]).unwrap();
        let at = |second: u64| Instant::ZERO + Nanos::from_millis(1_000 * second);
        let foreign: Level = "jpeg:1:176x144".parse().unwrap();
        let set: Vec<_> =
            (0..40).filter_map(|second| Some((second, ladder.on_rate(20.0, foreign, at(second))?))).collect();
        assert_eq!(set[0], (30, "jpeg:95:640x480".parse().unwrap()));
        let worth = |level: &str| ladder.worth(level.parse().unwrap());
        assert_eq!((worth("jpeg:50:352x288"), worth("jpeg:1:176x144")), (0.5, 0.0), "below the minimum");
        assert_eq!((worth("jpeg:94:1280x720"), worth("h264:30:640x480")), (1.0 - 1.0 / 6.0, 1.0));
        assert_eq!(ladder.on_rate(20.0, ladder.level(), at(70)), None, "the level in force is the ladder's");
    }

    #[test]
    fn jpeg_instead_of_a_rung_has_the_worth_of_the_rung() {
        let all = ["quality=30,15,1".parse().unwrap()];
        let ladder = LevelLadder::new("h261:30:352x288".parse().unwrap(), &all, 20.0).unwrap();
        let worth = |level: &str| ladder.worth(level.parse::<Level>().unwrap().as_jpeg());
        assert_eq!(["h261:30:352x288", "h261:15:352x288", "h261:1:352x288"].map(worth), [1.0, 0.75, 0.5]);
    }

    #[test]
    fn a_ladder_with_a_rung_that_is_no_level_is_refused_with_the_rung() {
        for (texts, said) in [
            (&["size=640x480,352x288", "codec=jpeg,h261", "quality=96"][..], &["rung 0", "96"][..]),
            (&["codec=jpeg,h261", "size=640x480,352x288"], &["rung 1", "h261"]),
            (&["quality=9", "quality=8"], &["twice"]),
            (&["colour=9"], &["colour", "quality=75"]),
            (&["quality=best"], &["best"]),
            (&[], &["0 dimensions"]),
        ] {
            let refusal = format!("{:#}", ladder(texts).unwrap_err());
            assert!(said.iter().all(|part| refusal.contains(part)), "{texts:?}: {refusal}");
        }
    }

    #[test]
    fn codecs_that_a_host_lacks_are_left_out() {
        let codecs = Concession::Codec(vec![Codec::Jpeg, Codec::H264]);
        assert_eq!(codecs.clone().limited_to(&[Codec::Jpeg]), Some(Concession::Codec(vec![Codec::Jpeg])));
        assert_eq!(codecs.limited_to(&[Codec::H261]), None);
    }
}
