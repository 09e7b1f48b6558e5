//! What the monitor is asked, and what it answers.

use qfabric_types::api::Problem;
pub use qfabric_types::monitor::Summary;
use qfabric_types::monitor::{AdaptivePeriod, Attribute, AttributeId, Readers, Threshold};
use qfabric_types::{AppId, Instant, Nanos};

use super::{MAX_PERIOD, MIN_PERIOD};

/// How an attribute is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The watcher is told every so often.
    pub period: Nanos,
    /// It is looked at so often, for its threshold and its summary, where that is more often; none: every `period`.
    pub check: Option<Nanos>,
    /// Beyond it the watcher is told at once.
    pub threshold: Option<Threshold>,
    /// What is told of the looks since it was told last.
    pub summary: Summary,
    /// It is told of crossings only; needs a threshold.
    pub quiet: bool,
}

impl Watch {
    /// Told every `period`, nothing else.
    pub const fn every(period: Nanos) -> Watch {
        Watch { period, check: None, threshold: None, summary: Summary::Last, quiet: false }
    }

    /// With a threshold.
    pub const fn with(self, threshold: Threshold) -> Watch {
        Watch { threshold: Some(threshold), ..self }
    }

    /// Its period may be set by feedback between these two.
    ///
    /// # Errors
    /// One of them is out of its range, or the shortest is longer than the longest.
    pub fn check_adaptive(period: &AdaptivePeriod) -> Result<(), MonitorError> {
        let AdaptivePeriod { least_ns: least, most_ns: most, .. } = *period;
        Watch::every(least).check()?;
        Watch::every(most).check()?;
        if least <= most { Ok(()) } else { Err(MonitorError::Adaptive { least, most }) }
    }

    pub(super) fn check(&self) -> Result<(), MonitorError> {
        let asked = [Some(self.period), self.check];
        let bad = asked.into_iter().flatten().find(|period| !(MIN_PERIOD..=MAX_PERIOD).contains(period));
        match bad {
            Some(period) => Err(MonitorError::Period { period }),
            None if self.quiet && self.threshold.is_none() => Err(MonitorError::Quiet),
            None => Ok(()),
        }
    }
}

/// A watch as it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watched<'a> {
    /// Who watches.
    pub application: AppId,
    /// What.
    pub attribute: &'a Attribute,
    /// How, with the period that feedback has chosen.
    pub watch: Watch,
    /// The last look's value, since the look before.
    pub value: Option<i64>,
    /// Whether the threshold is crossed.
    pub beyond: bool,
    /// When the watcher is told next, at the latest.
    pub due: Instant,
}

/// What a monitor has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Looks at attributes.
    pub looks: u64,
    /// Looks at which nothing could be read.
    pub unread: u64,
    /// Readings told.
    pub told: u64,
    /// Tellings that came too late by a period or more, and were left out.
    pub skipped: u64,
    /// Thresholds that the kernel reported.
    pub alerts: u64,
}

/// An attribute that is plugged in.
pub trait Source: Send {
    /// The raw number now: the level or the total. `others` are the attributes of this host that are not plugged in.
    fn read(&mut self, application: AppId, now: Instant, others: &mut dyn Readers) -> Option<i64>;
}

impl<F: FnMut(AppId, Instant, &mut dyn Readers) -> Option<i64> + Send> Source for F {
    fn read(&mut self, application: AppId, now: Instant, others: &mut dyn Readers) -> Option<i64> {
        self(application, now, others)
    }
}

/// Why something is not watched. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum MonitorError {
    /// There is no such attribute.
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is, or how to find out.
        near: String,
    },
    /// The period is out of its range.
    Period {
        /// What was asked for.
        period: Nanos,
    },
    /// The shortest of a range of periods is longer than the longest.
    Adaptive {
        /// The shortest.
        least: Nanos,
        /// The longest.
        most: Nanos,
    },
    /// Only crossings of a threshold are to be told, and there is none.
    Quiet,
    /// A limit is reached.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The name, or its number, is in use.
    Taken {
        /// What was to be plugged in.
        name: String,
        /// What is there.
        by: String,
    },
    /// An attribute of applications is watched for none.
    NeedsApplication {
        /// The attribute.
        name: String,
    },
    /// There is no such watch.
    NotWatched {
        /// Who.
        application: AppId,
        /// What.
        attribute: AttributeId,
    },
}

impl MonitorError {
    /// What happened, and what to do about it.
    pub fn problem(&self) -> Problem {
        match self {
            MonitorError::Unknown { name, near } => {
                Problem::new("channel_invalid", format!("no attribute {name:?} on this host"), near)
            }
            MonitorError::Period { period } => Problem::new(
                "channel_invalid",
                format!("a poll period of {period} is not possible"),
                format!("use {MIN_PERIOD} to {MAX_PERIOD}"),
            ),
            MonitorError::Adaptive { least, most } => Problem::new(
                "channel_invalid",
                format!("no period is at least {least} and at most {most}"),
                "say the shorter one first",
            ),
            MonitorError::Quiet => Problem::new(
                "channel_invalid",
                "a quiet watch tells crossings of its threshold, and has no threshold",
                "give it one too, such as '> 4'",
            ),
            MonitorError::TooMany { what, limit } => Problem::new(
                "channel_invalid",
                format!("too many {what}: the limit is {limit}"),
                "end some watches first",
            ),
            MonitorError::Taken { name, by } => Problem::new(
                "channel_invalid",
                format!("{name} cannot be plugged in: {by} has its name or its number"),
                "choose another name",
            ),
            MonitorError::NeedsApplication { name } => {
                Problem::new("channel_invalid", format!("{name} is about an application"), "say which (--application)")
            }
            MonitorError::NotWatched { application, attribute } => Problem::new(
                "channel_invalid",
                format!("application {application} does not watch attribute {attribute}"),
                "watch it first",
            ),
        }
    }
}

/// What to say to one who looks for an attribute that is not there: those that begin or end alike.
pub(super) fn near<'a>(name: &str, known: impl Iterator<Item = &'a Attribute>) -> String {
    let first = name.split('.').next().unwrap_or_default();
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_near = |known: &str| known.split('.').next() == Some(first) || known.rsplit('.').next() == Some(last);
    let names: Vec<_> = known.map(|attribute| attribute.name.as_str()).filter(|name| is_near(name)).take(8).collect();
    match names.is_empty() {
        true => "`qfabric monitor ls` lists what there is".to_owned(),
        false => format!("near it: {}", names.join(", ")),
    }
}
