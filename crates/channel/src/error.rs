//! Refusals: nothing was changed.

use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::{Difference, Format, FormatError};

use crate::{Action, Attributes, Key, Limits, Origin, Spot};

/// Why a channel, member or group is not to be had.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// No host holds a channel of this name.
    #[error("there is no channel `{name}`; create it, or see `qfabric channel ls` for those there are", name = .0.name)]
    Unknown(ChannelId),
    /// There is one of this name.
    #[error("the channel `{name}` exists, created by {by}; open it", name = channel.name, by = origin.creator)]
    Exists {
        /// Which.
        channel: ChannelId,
        /// By whom it was created.
        origin: Origin,
    },
    /// This host does not hold it.
    #[error("the channel `{name}` is not open here; open it first", name = .0.name)]
    NotOpen(ChannelId),
    /// No such source, sink or registration here.
    #[error("there is no {what} {number} here; it has left, or its channel was closed")]
    Gone {
        /// `source`, `sink` or `registration`.
        what: &'static str,
        /// Its number.
        number: u32,
    },
    /// The policy says no.
    #[error("{host} may not {action:?} on `{channel}`; its access list is in the daemon's configuration", channel = channel.name)]
    Forbidden {
        /// Who.
        host: Name,
        /// What.
        action: Action,
        /// Where.
        channel: ChannelId,
    },
    /// More than there may be.
    #[error("{asked} {what}, the limit is {limit}; {remedy}")]
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
    #[error("`{channel}` has no events of type `{name}`; it has {known}", channel = channel.name)]
    NoType {
        /// Where.
        channel: ChannelId,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The channel's events cannot be read with the sink's format.
    #[error("events of type `{name}` cannot be read with this format: {difference}; take the channel's format")]
    Format {
        /// Which type.
        name: String,
        /// The first member that differs, and how.
        difference: Difference,
    },
    /// A format that describes nothing which can be.
    #[error(transparent)]
    InvalidFormat(#[from] FormatError),
    /// Two types of one name.
    #[error("the channel would have two types `{0}`; give them different names")]
    TwoTypes(String),
    /// The queue's length.
    #[error("a queue of {asked} events; it may have 1 to {}", Limits::QUEUE)]
    Capacity {
        /// What was asked for.
        asked: u32,
    },
    /// The channel's patience.
    #[error("a patience of {asked}; it may be at most {}", Limits::PATIENCE)]
    Patience {
        /// What was asked for.
        asked: Nanos,
    },
    /// The group's name is too long for a channel's.
    #[error("the group's name `{0}` is too long: it may have {most} bytes", most = Name::MAX - "group.".len())]
    GroupName(Name),
    /// The group's level.
    #[error("level {0} of a group; levels are 1 (connection), 2 (role), 3 (stream) and 4 (system)")]
    Level(u8),
    /// A range that has nothing in it.
    #[error("`{metric}` from {min} to {max}: the minimum is above the maximum")]
    EmptyRange {
        /// Which.
        metric: Key,
        /// From.
        min: i64,
        /// To.
        max: i64,
    },
    /// Q-channels are opened with their data channels and groups.
    #[error("Q-channels are made with their data channels and groups, not by themselves")]
    Hidden,
}

/// Why an event was not submitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A sink is slow and the channel's policy is to wait: try again when [`crate::Port::writable`] is called, or at
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
    #[error("an event of {bytes} bytes; its format has {least}, and {} is the limit", Format::MAX_SIZE)]
    Size {
        /// What was given.
        bytes: usize,
        /// What the format has.
        least: u32,
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
pub enum FilterError {
    /// Its channel, types or author.
    #[error(transparent)]
    Channel(#[from] Error),
    /// The text does not compile: what is wrong, with its places.
    #[error("{0}")]
    Text(String),
    /// The text's `input` or `output` does not fit the channel's events.
    #[error("`struct {structure}` does not fit events of type `{event_type}`: {what}")]
    Layout {
        /// `input` or `output`.
        structure: &'static str,
        /// Which type.
        event_type: String,
        /// What is wrong.
        what: String,
    },
    /// Another host's order about a filter that is not its own.
    #[error("the filter `{name}` was installed by {by}; choose another name")]
    Owned {
        /// Which.
        name: Name,
        /// By whom.
        by: Name,
    },
    /// There is no such filter here.
    #[error("there is no filter `{name}` on `{channel}` here", name = .0.name, channel = .0.channel.name)]
    Unknown(Spot),
    /// The filter has no such parameter.
    #[error("the filter has no parameter `{name}`; it has {known}")]
    NoParameter {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The event has no such number.
    #[error("events of type `{event_type}` have no number `{field}` to take")]
    NoField {
        /// Which type.
        event_type: String,
        /// What was asked for.
        field: String,
    },
    /// Nothing could be made to run it.
    #[error("the filter cannot be run: {0}")]
    Engine(String),
}
