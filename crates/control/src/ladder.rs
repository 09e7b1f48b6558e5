//! The ladder: an application gives up quality step by step to keep its rate, and takes it back in reverse order.
//!
//! ```text
//!   rung 0: best     quality down …        size down …        codec down …     last rung: the minimum of all
//!      │ rate too low, twice, or far too low once (after the dwell time)                  │
//!      └────────────────────────────── lower ──────────────────────────────────────────>  │
//!      <──── raise: the rate was kept for `calm`; after a raise that failed, for a longer time ───┘
//! ```
//! If the levels have utilities, each rung gives up the level whose loss costs least ([`Ladder::by_worth`]).
//!
//! Hysteresis: a rate between the two thresholds changes nothing. After a lowering by one rung the next raise waits
//! [`Terms::after_failure`], because a small lack may be noise at the edge of a rung; after a lowering by several, a
//! disturbance, it waits `calm`. A raise that must be taken back within `probe` has failed: the wait is then twice as
//! long, up to [`Terms::most_wait`]. So a steady load causes at most two changes in [`Terms::after_failure`].
//!
//! These waits are long if a limit ends, such as that of a link. [`Ladder::relieve`] shortens them when something else than the
//! rate shows the end: the next raises wait `calm`, and each climbs half of the way. If such a raise fails, the ladder returns
//! to the rung before it, and relief counts only after [`Terms::after_failure`]. For
//! raises the rate is smoothed over a few reports. Rates are events per second. Source: thesis §5.3, §5.5 (quality, then
//! size); the paper moves one step of quality per report in both directions and has neither hysteresis nor a second
//! dimension.

use std::fmt;

use qfabric_types::api::Problem;
use qfabric_types::{Instant, Nanos};

/// Weight of the newest report in the smoothed rate.
const SMOOTHING: f64 = 0.4;

/// Something that an application can give up, such as the quality of its pictures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// Such as `quality`, `size` or `codec`.
    pub name: String,
    /// From the best level to the minimum, in the application's own unit.
    pub levels: Vec<i64>,
}

impl Dimension {
    pub fn new(name: &str, levels: &[i64]) -> Dimension {
        Dimension { name: name.to_owned(), levels: levels.to_vec() }
    }
}

/// Thresholds and times of a ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Wanted rate, in events per second.
    pub wanted: f64,
    /// Lower when this part of the rate is missing, 0 to 1.
    pub lower_below: f64,
    /// A rate of which less than this part is missing is kept, 0 to `lower_below`.
    pub kept_above: f64,
    /// Least time between two changes.
    pub dwell: Nanos,
    /// Time for which the rate must be kept before a raise.
    pub calm: Nanos,
    /// A raise has failed if the rate falls within this time.
    pub probe: Nanos,
    /// Wait before the next raise after a lowering by one rung, and after a raise that failed.
    pub after_failure: Nanos,
    /// Longest wait before a raise.
    pub most_wait: Nanos,
}

impl Terms {
    /// Lowers when more than 15 % of the rate is missing, for reports about once a second.
    pub fn new(wanted: f64) -> Terms {
        Terms {
            wanted,
            lower_below: 0.15,
            kept_above: 0.08,
            dwell: Nanos::from_millis(1_000),
            calm: Nanos::from_millis(5_000),
            probe: Nanos::from_millis(10_000),
            after_failure: Nanos::from_millis(60_000),
            most_wait: Nanos::from_millis(240_000),
        }
    }

    /// The time between two events at the wanted rate.
    pub fn period(&self) -> Nanos {
        Nanos::from_f64(1e9 / self.wanted)
    }

    /// # Errors
    /// [`InvalidLadder`] names the value and its range.
    pub fn check(&self) -> Result<(), InvalidLadder> {
        let refused = |what, value, expected| Err(InvalidLadder::OutOfRange { what, value, expected });
        if !(self.wanted > 0.0 && self.wanted <= 1e6) {
            return refused("the wanted rate", self.wanted, "above 0, up to 1000000 events per second");
        }
        if !(0.0..1.0).contains(&self.lower_below) {
            return refused("lower_below", self.lower_below, "0 to below 1");
        }
        if !(0.0..=self.lower_below).contains(&self.kept_above) {
            return refused("kept_above", self.kept_above, "0 to lower_below");
        }
        Ok(())
    }
}

/// A ladder cannot be built of these values.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InvalidLadder {
    OutOfRange { what: &'static str, value: f64, expected: &'static str },
    Dimensions { found: usize },
    Levels { name: String, found: usize },
    Repeated { name: String },
}

impl InvalidLadder {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            Self::OutOfRange { what, value, expected } => (format!("{what} is {value}"), format!("use {expected}")),
            Self::Dimensions { found } => (
                format!("the ladder has {found} dimensions"),
                format!("use 1 to {}, such as quality, size and codec", Ladder::MOST_DIMENSIONS),
            ),
            Self::Levels { name, found } => (
                format!("{name} has {found} levels"),
                format!("use 1 to {}, from the best to the minimum", Ladder::MOST_LEVELS),
            ),
            Self::Repeated { name } => (
                format!("the ladder has the dimension {name} twice"),
                "name each dimension once, with all its levels".to_owned(),
            ),
        };
        Problem::new("channel_invalid", message, next_step)
    }
}

/// The reason of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The rate was too low.
    TooSlow { achieved: f64, wanted: f64 },
    /// The rate was kept for this time.
    Kept { achieved: f64, wanted: f64, since: Nanos },
    /// The application asked for the step.
    Asked,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::TooSlow { achieved, wanted } => write!(f, "{achieved:.1}/s of {wanted:.1}/s"),
            Reason::Kept { achieved, wanted, since } => write!(f, "{achieved:.1}/s of {wanted:.1}/s, kept for {since}"),
            Reason::Asked => f.write_str("asked for"),
        }
    }
}

/// One or more rungs down or up. [`Ladder::levels`] has the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// The rung before and the rung now; 0 is the best.
    pub from: usize,
    pub to: usize,
    pub reason: Reason,
}

impl Move {
    pub fn is_lower(&self) -> bool {
        self.to > self.from
    }
}

/// The state of one application's ladder.
#[derive(Clone, Debug)]
pub struct Ladder {
    dimensions: Vec<Dimension>,
    /// The dimension that each rung below the best lowers by one level.
    path: Vec<usize>,
    terms: Terms,
    rung: usize,
    changed: Option<Instant>,
    /// The last change was a raise, which has not stood the test of `probe` yet.
    is_probing: bool,
    /// Reports in a row with a rate that was too low.
    low: u32,
    /// The rate, smoothed over the reports since the last change.
    smooth: Option<f64>,
    /// The rate has been kept since.
    kept: Option<Instant>,
    /// Wait for the next raise.
    wait: Nanos,
    /// The limit seems to have ended: raises climb half of the way.
    is_relieved: bool,
    /// The rung before the last raise, and when a raise failed last.
    before: usize,
    failed: Option<Instant>,
    reported: Option<Instant>,
}

impl Ladder {
    /// Limit of the dimensions of a ladder.
    pub const MOST_DIMENSIONS: usize = 8;
    /// Limit of the levels of a dimension.
    pub const MOST_LEVELS: usize = 256;

    /// Begins with the best level of each dimension. The first dimension is given up first.
    ///
    /// # Errors
    /// [`InvalidLadder`] names the value and its range.
    pub fn new(dimensions: Vec<Dimension>, terms: Terms) -> Result<Ladder, InvalidLadder> {
        terms.check()?;
        if !(1..=Ladder::MOST_DIMENSIONS).contains(&dimensions.len()) {
            return Err(InvalidLadder::Dimensions { found: dimensions.len() });
        }
        if let Some(wrong) = dimensions.iter().find(|one| !(1..=Ladder::MOST_LEVELS).contains(&one.levels.len())) {
            return Err(InvalidLadder::Levels { name: wrong.name.clone(), found: wrong.levels.len() });
        }
        let is_repeated =
            |(at, one): &(usize, &Dimension)| dimensions[..*at].iter().any(|other| other.name == one.name);
        if let Some((_, twice)) = dimensions.iter().enumerate().find(is_repeated) {
            return Err(InvalidLadder::Repeated { name: twice.name.clone() });
        }
        let in_turn = |(at, one): (usize, &Dimension)| std::iter::repeat_n(at, one.levels.len() - 1);
        let path = dimensions.iter().enumerate().flat_map(in_turn).collect();
        let wait = terms.calm;
        let (changed, kept, reported, failed) = (None, None, None, None);
        Ok(Ladder {
            dimensions,
            path,
            terms,
            rung: 0,
            changed,
            is_probing: false,
            low: 0,
            smooth: None,
            kept,
            wait,
            is_relieved: false,
            before: 0,
            failed,
            reported,
        })
    }

    /// Each rung gives up the level whose loss costs least utility, instead of one dimension after the other; of equal
    /// losses, that of the first dimension. `worth` has the utility of each level of each dimension; with another
    /// number of utilities nothing changes. If the losses of a dimension grow from its best level down, no other levels of the
    /// same number of steps are worth more than those of a rung (thesis §2.1).
    pub fn by_worth(mut self, worth: &[Vec<u64>]) -> Ladder {
        if !worth.iter().map(Vec::len).eq(self.dimensions.iter().map(|one| one.levels.len())) {
            return self;
        }
        let mut down = vec![0; worth.len()];
        self.path = std::iter::from_fn(|| {
            let loss = |at: &usize| worth[*at][down[*at]].saturating_sub(worth[*at][down[*at] + 1]);
            let next = (0..down.len()).filter(|at| down[*at] + 1 < worth[*at].len()).min_by_key(loss)?;
            down[next] += 1;
            Some(next)
        })
        .collect();
        self
    }

    /// Begins at another rung, such as after a restart; a rung below the minimum is the minimum.
    pub fn starting_at(mut self, rung: usize) -> Ladder {
        self.rung = rung.min(self.lowest());
        self
    }

    /// The present rung; 0 is the best.
    pub fn rung(&self) -> usize {
        self.rung
    }

    /// The rung at which every dimension is at its minimum.
    pub fn lowest(&self) -> usize {
        self.path.len()
    }

    pub fn is_lowest(&self) -> bool {
        self.rung == self.lowest()
    }

    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The present level of each dimension, in the order of [`Ladder::new`].
    pub fn levels(&self) -> impl Iterator<Item = (&str, i64)> {
        self.levels_at(self.rung)
    }

    /// The level of each dimension at a rung; a rung below the minimum is the minimum.
    pub fn levels_at(&self, rung: usize) -> impl Iterator<Item = (&str, i64)> {
        let given_up = &self.path[..rung.min(self.path.len())];
        self.dimensions.iter().enumerate().map(move |(at, one)| {
            let down = given_up.iter().filter(|lowered| **lowered == at).count();
            (one.name.as_str(), one.levels[down])
        })
    }

    /// The present level of a dimension.
    pub fn level(&self, name: &str) -> Option<i64> {
        self.levels().find(|(own, _)| *own == name).map(|(_, level)| level)
    }

    /// The rate that was achieved until `now`, such as once a second. Returns a change of the levels, if there is one.
    /// A rate that is no number, and a report older than the last one, are ignored.
    pub fn on_rate(&mut self, achieved: f64, now: Instant) -> Option<Move> {
        if !achieved.is_finite() || achieved < 0.0 || self.reported.is_some_and(|last| now < last) {
            return None;
        }
        self.reported = Some(now);
        self.note(achieved, now);
        let since = self.changed.map(|changed| now.since(changed));
        if since.is_some_and(|since| since < self.terms.dwell) {
            return None;
        }
        let missing = 1.0 - achieved / self.terms.wanted;
        let is_far = missing > 2.0 * self.terms.lower_below;
        if self.low >= 2 || (self.low == 1 && is_far) {
            return self.lower(achieved, missing, since, now);
        }
        self.raise(achieved, now)
    }

    /// Counts low rates in a row, and the time for which the rate was kept.
    fn note(&mut self, achieved: f64, now: Instant) {
        let missing = |rate: f64| 1.0 - rate / self.terms.wanted;
        let smooth = self.smooth.map_or(achieved, |smooth| smooth + SMOOTHING * (achieved - smooth));
        self.smooth = Some(smooth);
        self.low = if missing(achieved) > self.terms.lower_below { self.low.saturating_add(1) } else { 0 };
        self.kept = match missing(smooth) < self.terms.kept_above && self.low == 0 {
            true => self.kept.or(Some(now)),
            false => None,
        };
        let is_proven = self.changed.is_some_and(|changed| now.since(changed) >= self.terms.probe);
        if self.is_probing && self.low == 0 && is_proven {
            (self.is_probing, self.wait) = (false, self.terms.calm);
        }
    }

    fn lower(&mut self, achieved: f64, missing: f64, since: Option<Nanos>, now: Instant) -> Option<Move> {
        if self.is_lowest() {
            return None;
        }
        let has_failed = self.is_probing && since.is_some_and(|since| since < self.terms.probe);
        // Far below the wanted rate, single steps would take too long.
        let steps = match missing {
            _ if has_failed => self.before.saturating_sub(self.rung).max(1),
            missing if missing > 0.5 => 4,
            missing if missing > 0.25 => 2,
            _ => 1,
        };
        let doubled = Nanos::new(self.wait.get().saturating_mul(2)).min(self.terms.most_wait);
        self.wait = match (has_failed, steps) {
            (true, _) => doubled.max(self.terms.after_failure),
            (false, 1) => self.wait.max(self.terms.after_failure),
            (false, _) => self.terms.calm,
        };
        self.failed = if has_failed { Some(now) } else { self.failed };
        (self.is_probing, self.is_relieved) = (false, false);
        self.step(self.rung + steps, Reason::TooSlow { achieved, wanted: self.terms.wanted }, now)
    }

    fn raise(&mut self, achieved: f64, now: Instant) -> Option<Move> {
        let since = now.since(self.kept?);
        if self.rung == 0 || since < self.wait {
            return None;
        }
        (self.is_probing, self.before) = (true, self.rung);
        let reason = Reason::Kept { achieved, wanted: self.terms.wanted, since };
        let up = if self.is_relieved { self.rung.div_ceil(2) } else { 1 };
        self.step(self.rung - up, reason, now)
    }

    /// Something else than the rate shows that the limit has ended, such as a shorter delay
    /// ([`Relief`](crate::relief::Relief)). Returns whether it counts: not at the best rung, and not within
    /// [`Terms::after_failure`] of a raise that failed.
    pub fn relieve(&mut self, now: Instant) -> bool {
        let has_failed = self.failed.is_some_and(|failed| now.since(failed) < self.terms.after_failure);
        if self.rung == 0 || has_failed {
            return false;
        }
        (self.is_relieved, self.wait) = (true, self.wait.min(self.terms.calm));
        true
    }

    /// Moves to a rung, such as by a decision of a policy; a rung below the minimum is the minimum.
    pub fn move_to(&mut self, rung: usize, now: Instant) -> Option<Move> {
        (self.is_probing, self.is_relieved) = (false, false);
        self.step(rung, Reason::Asked, now)
    }

    fn step(&mut self, to: usize, reason: Reason, now: Instant) -> Option<Move> {
        let (from, to) = (self.rung, to.min(self.lowest()));
        (self.low, self.smooth, self.kept) = (0, None, None);
        if from == to {
            return None;
        }
        (self.rung, self.changed) = (to, Some(now));
        Some(Move { from, to, reason })
    }
}

#[cfg(test)]
mod tests;
