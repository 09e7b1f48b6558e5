//! Refusals: nothing was changed.

use qfabric_types::Nanos;
use qfabric_types::api::Problem;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::{Difference, FormatError};

use crate::{Action, Attributes, Key, Limits, Origin, SinkId, SourceId, Spot};

/// Why a channel, member or group is not to be had.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum Error {
    /// No host holds a channel of this name.
    Unknown(ChannelId),
    /// There is one of this name.
    Exists {
        /// Which.
        channel: ChannelId,
        /// By whom it was created.
        origin: Origin,
    },
    /// This host does not hold it.
    NotOpen(ChannelId),
    /// No such source, sink or registration here.
    Gone {
        /// `source`, `sink` or `registration`.
        what: &'static str,
        /// Its number.
        number: u32,
    },
    /// The policy says no.
    Forbidden {
        /// Who.
        host: Name,
        /// What.
        action: Action,
        /// Where.
        channel: ChannelId,
        /// By which rule.
        why: String,
    },
    /// More than there may be.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there would be.
        asked: usize,
        /// How many there may be.
        limit: usize,
        /// What to do.
        remedy: &'static str,
    },
    /// The channel has no type of this name.
    NoType {
        /// Where.
        channel: ChannelId,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The channel's events cannot be read with the sink's format.
    Format {
        /// Which type.
        name: String,
        /// The first member that differs, and how.
        difference: Difference,
    },
    /// A format that describes nothing which can be.
    InvalidFormat(#[from] FormatError),
    /// Two types of one name.
    TwoTypes(String),
    /// The queue's length.
    Capacity {
        /// What was asked for.
        asked: u32,
    },
    /// The channel's patience.
    Patience {
        /// What was asked for.
        asked: Nanos,
    },
    /// The group's name is too long for a channel's.
    GroupName(Name),
    /// The group's level.
    Level(u8),
    /// A range that has nothing in it.
    EmptyRange {
        /// Which.
        metric: Key,
        /// From.
        min: i64,
        /// To.
        max: i64,
    },
    /// Q-channels are opened with their data channels and groups.
    Hidden,
}

impl Error {
    /// There is no such source on this host, or no more.
    pub(crate) fn no_source(source: SourceId) -> Error {
        Error::Gone { what: "source", number: source.0 }
    }

    /// There is no such sink on this host, or no more.
    pub(crate) fn no_sink(sink: SinkId) -> Error {
        Error::Gone { what: "sink", number: sink.0 }
    }

    /// What happened, and what to do about it.
    pub fn problem(&self) -> Problem {
        match self {
            Error::Unknown(channel) => Problem::new(
                "no_such_channel",
                format!("there is no channel `{}`", channel.name),
                "create it, or see `qfabric channel ls` for those there are",
            ),
            Error::Exists { channel, origin } => Problem::new(
                "channel_exists",
                format!("the channel `{}` exists, created by {}", channel.name, origin.creator),
                "open it",
            ),
            Error::NotOpen(channel) => Problem::new(
                "channel_not_open",
                format!("the channel `{}` is not open here", channel.name),
                "open it first",
            ),
            Error::Gone { what, number } => Problem::new(
                "no_such_member",
                format!("there is no {what} {number} here"),
                "it has left, or its channel was closed",
            ),
            Error::Forbidden { host, action, channel, why } => Problem::new(
                "channel_forbidden",
                format!("{host} may not {} on `{}`: {why}", action.name(), channel.name),
                "have that changed, and the list read again with qfabric channel reload",
            ),
            Error::TooMany { what, asked, limit, remedy } => {
                Problem::new("channel_limit", format!("{asked} {what}, the limit is {limit}"), *remedy)
            }
            Error::NoType { channel, name, known } => Problem::new(
                "channel_invalid",
                format!("`{}` has no events of type `{name}`", channel.name),
                format!("it has {known}"),
            ),
            Error::Format { name, difference } => Problem::new(
                "channel_invalid",
                format!("events of type `{name}` cannot be read with this format: {difference}"),
                "take the channel's format",
            ),
            Error::InvalidFormat(error) => {
                Problem::new("channel_invalid", error.to_string(), "declare it as a C structure")
            }
            Error::TwoTypes(name) => Problem::new(
                "channel_invalid",
                format!("the channel would have two types `{name}`"),
                "give them different names",
            ),
            Error::Capacity { asked } => Problem::new(
                "channel_invalid",
                format!("a queue of {asked} events"),
                format!("it may have 1 to {}", Limits::QUEUE),
            ),
            Error::Patience { asked } => Problem::new(
                "channel_invalid",
                format!("a patience of {asked}"),
                format!("it may be at most {}", Limits::PATIENCE),
            ),
            Error::GroupName(name) => Problem::new(
                "channel_invalid",
                format!("the group's name `{name}` is too long"),
                format!("it may have {} bytes", Name::MAX - "group.".len()),
            ),
            Error::Level(level) => Problem::new(
                "channel_invalid",
                format!("level {level} of a group"),
                "levels are 1 (connection), 2 (role), 3 (stream) and 4 (system)",
            ),
            Error::EmptyRange { metric, min, max } => Problem::new(
                "channel_invalid",
                format!("`{metric}` from {min} to {max}: the minimum is above the maximum"),
                "exchange the two",
            ),
            Error::Hidden => Problem::new(
                "channel_invalid",
                "Q-channels are made with their data channels and groups, not by themselves",
                "open the data channel",
            ),
        }
    }
}

/// Why an event was not submitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A sink is slow and the channel's policy is to wait: try again when [`crate::Output::Writable`] says so, or at
    /// `until`.
    #[error("a sink is slow; try again when told, or after {until:?}")]
    WouldBlock {
        /// From then on the slow sink is passed over.
        until: qfabric_types::Instant,
    },
    /// Its deadline has passed. Counted.
    #[error("the event's deadline passed {by} ago")]
    Late {
        /// How long ago.
        by: Nanos,
    },
    /// No such source here.
    #[error("there is no source {0} here; it has left, or its channel was closed")]
    Gone(u32),
    /// No such type.
    #[error("the channel has {have} types of events, numbered from 0; there is no {asked}")]
    NoType {
        /// What was asked for.
        asked: u16,
        /// How many there are.
        have: usize,
    },
    /// Shorter than its format, or too long.
    #[error("an event of {bytes} bytes; its format has {least}, and {most} is the limit")]
    Size {
        /// What was given.
        bytes: usize,
        /// What the format has.
        least: u32,
        /// The limit on the channel.
        most: usize,
    },
    /// Priority above 7.
    #[error("priority {0}; priorities are 0 (lowest) to 7")]
    Priority(u8),
    /// Too many attributes.
    #[error("{0} attributes on an event, the limit is {most}", most = Attributes::MAX_ON_EVENT)]
    Attributes(usize),
    /// An attribute's name.
    #[error(transparent)]
    Key(#[from] crate::InvalidKey),
}

/// Why a filter was not installed, changed or bound.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum FilterError {
    /// Its channel, types or author.
    Channel(#[from] Error),
    /// The text does not compile: what is wrong, with its places.
    #[error("{0}")]
    Text(String),
    /// The text's `input` or `output` does not fit the channel's events.
    Layout {
        /// `input` or `output`.
        structure: &'static str,
        /// Which type.
        event_type: String,
        /// What is wrong.
        what: String,
    },
    /// Another host's order about a filter that is not its own.
    Owned {
        /// Which.
        name: Name,
        /// By whom.
        by: Name,
    },
    /// There is no such filter here.
    Unknown(Spot),
    /// The filter has no such parameter.
    NoParameter {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The event has no such number.
    NoField {
        /// Which type.
        event_type: String,
        /// What was asked for.
        field: String,
    },
    /// Nothing could be made to run it.
    Engine(String),
}

impl FilterError {
    /// What happened, and what to do about it.
    pub fn problem(&self) -> Problem {
        match self {
            FilterError::Channel(error) => error.problem(),
            FilterError::Text(text) => Problem::new("code", text, "see `qfabric ecode check`"),
            FilterError::Layout { structure, event_type, what } => Problem::new(
                "channel_invalid",
                format!("`struct {structure}` does not fit events of type `{event_type}`: {what}"),
                "compare it with the channel's format: qfabric channel show",
            ),
            FilterError::Owned { name, by } => Problem::new(
                "channel_invalid",
                format!("the filter `{name}` was installed by {by}"),
                "choose another name",
            ),
            FilterError::Unknown(spot) => Problem::new(
                "no_such_filter",
                format!("there is no filter `{}` on `{}` here", spot.name, spot.channel.name),
                "see qfabric channel show",
            ),
            FilterError::NoParameter { name, known } => Problem::new(
                "no_such_filter",
                format!("the filter has no parameter `{name}`"),
                format!("it has {known}"),
            ),
            FilterError::NoField { event_type, field } => Problem::new(
                "channel_invalid",
                format!("events of type `{event_type}` have no number `{field}` to take"),
                "see its members with qfabric channel show",
            ),
            FilterError::Engine(why) => {
                Problem::new("channel_invalid", format!("the filter cannot be run: {why}"), "see qfabric doctor")
            }
        }
    }
}
