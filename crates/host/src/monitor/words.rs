//! Watches and errors of the monitor.

use qfabric_types::api::Problem;
pub use qfabric_types::monitor::Summary;
use qfabric_types::monitor::{AdaptivePeriod, Attribute, AttributeId, Readers, Threshold};
use qfabric_types::{AppId, Instant, Nanos};

use super::{MAX_PERIOD, MIN_PERIOD};

/// How an attribute is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Interval of readings.
    pub period: Nanos,
    /// Interval of looks for the threshold and the summary, if it is shorter; `None`: `period`.
    pub check: Option<Nanos>,
    /// Crossing it causes a reading at once.
    pub threshold: Option<Threshold>,
    /// How the looks since the last reading are summarised.
    pub summary: Summary,
    /// Only crossings cause readings; needs a threshold.
    pub quiet: bool,
}

impl Watch {
    /// A reading every `period`, nothing else.
    pub const fn every(period: Nanos) -> Watch {
        Watch { period, check: None, threshold: None, summary: Summary::Last, quiet: false }
    }

    /// Adds a threshold.
    pub const fn with(self, threshold: Threshold) -> Watch {
        Watch { threshold: Some(threshold), ..self }
    }

    /// Checks the bounds of a period that is set by feedback.
    ///
    /// # Errors
    /// A bound is out of range, or the shortest period is longer than the longest.
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

/// The state of a watch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watched<'a> {
    pub application: AppId,
    pub attribute: &'a Attribute,
    /// The watch, with the period that feedback has chosen.
    pub watch: Watch,
    /// The value of the last look, since the look before.
    pub value: Option<i64>,
    /// Whether the threshold is crossed.
    pub beyond: bool,
    /// When the next reading is due at the latest.
    pub due: Instant,
}

/// Counters of a monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Looks at attributes.
    pub looks: u64,
    /// Looks at which the attribute could not be read.
    pub unread: u64,
    /// Readings passed to watchers.
    pub told: u64,
    /// Readings left out because they were late by a period or more.
    pub skipped: u64,
    /// Reports of the kernel about thresholds.
    pub alerts: u64,
}

/// A plugged-in attribute.
pub trait Source: Send {
    /// The present raw number: the level or the total. `others` are the attributes of this host that are not
    /// plugged in.
    fn read(&mut self, application: AppId, now: Instant, others: &mut dyn Readers) -> Option<i64>;
}

impl<F: FnMut(AppId, Instant, &mut dyn Readers) -> Option<i64> + Send> Source for F {
    fn read(&mut self, application: AppId, now: Instant, others: &mut dyn Readers) -> Option<i64> {
        self(application, now, others)
    }
}

/// The reason of a refusal. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum MonitorError {
    /// The host has no such attribute.
    Unknown {
        name: String,
        /// Similar names, or how to list all.
        near: String,
    },
    /// The period is out of range.
    Period { period: Nanos },
    /// The shortest period is longer than the longest.
    Adaptive { least: Nanos, most: Nanos },
    /// The watch is quiet, but has no threshold.
    Quiet,
    /// A limit is reached.
    TooMany { what: &'static str, limit: usize },
    /// The name, or its number, is in use.
    Taken {
        /// The attribute to plug in.
        name: String,
        /// The existing attribute.
        by: String,
    },
    /// An attribute of applications is watched without an application.
    NeedsApplication { name: String },
    /// The application does not watch the attribute.
    NotWatched { application: AppId, attribute: AttributeId },
}

impl MonitorError {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        match self {
            MonitorError::Unknown { name, near } => {
                Problem::new("channel_invalid", format!("this host has no attribute {name:?}"), near)
            }
            MonitorError::Period { period } => Problem::new(
                "channel_invalid",
                format!("the poll period {period} is out of range"),
                format!("use {MIN_PERIOD} to {MAX_PERIOD}"),
            ),
            MonitorError::Adaptive { least, most } => Problem::new(
                "channel_invalid",
                format!("the shortest period {least} is longer than the longest {most}"),
                "give the shorter one first",
            ),
            MonitorError::Quiet => Problem::new(
                "channel_invalid",
                "a quiet watch reports only crossings of its threshold, but has no threshold",
                "add a threshold, such as '> 4'",
            ),
            MonitorError::TooMany { what, limit } => Problem::new(
                "channel_invalid",
                format!("too many {what}: the limit is {limit}"),
                "end some watches first",
            ),
            MonitorError::Taken { name, by } => Problem::new(
                "channel_invalid",
                format!("{name} cannot be plugged in: {by} has the same name or number"),
                "choose another name",
            ),
            MonitorError::NeedsApplication { name } => Problem::new(
                "channel_invalid",
                format!("{name} is an attribute of applications"),
                "name the application (--application)",
            ),
            MonitorError::NotWatched { application, attribute } => Problem::new(
                "channel_invalid",
                format!("application {application} does not watch attribute {attribute}"),
                "watch it first",
            ),
        }
    }
}

/// The next step for an unknown attribute: names that begin or end in the same way.
pub(super) fn near<'a>(name: &str, known: impl Iterator<Item = &'a Attribute>) -> String {
    let first = name.split('.').next().unwrap_or_default();
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_near = |known: &str| known.split('.').next() == Some(first) || known.rsplit('.').next() == Some(last);
    let names: Vec<_> = known.map(|attribute| attribute.name.as_str()).filter(|name| is_near(name)).take(8).collect();
    match names.is_empty() {
        true => "list the attributes with `qfabric monitor ls`".to_owned(),
        false => format!("similar names: {}", names.join(", ")),
    }
}
