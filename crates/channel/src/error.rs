//! Refusals of calls. A refused call changes nothing.

use qfabric_types::Nanos;
use qfabric_types::api::Problem;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::{Difference, FormatError};

use crate::{Action, Attributes, FilterId, Key, Limits, Origin, SinkId, SourceId};

/// Why a call for a channel, member or group was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum Error {
    /// No host holds a channel of this name.
    Unknown(ChannelId),
    /// A channel of this name exists already.
    Exists { channel: ChannelId, origin: Origin },
    /// This host does not hold the channel.
    NotOpen(ChannelId),
    /// This host has no such source, sink or registration.
    Gone {
        /// `source`, `sink` or `registration`.
        what: &'static str,
        number: u32,
    },
    /// The policy does not allow the action.
    Forbidden {
        host: Name,
        action: Action,
        channel: ChannelId,
        /// The rule, and the place in which it is written.
        why: String,
    },
    /// A limit would be exceeded.
    TooMany {
        /// The noun in the message: «members of one channel».
        what: &'static str,
        /// The number that the call would reach.
        asked: usize,
        limit: usize,
        /// The next step in the message.
        remedy: &'static str,
    },
    /// The channel has no type of this name.
    NoType {
        channel: ChannelId,
        /// The requested name.
        name: String,
        /// The names of the channel's types, for the message.
        known: String,
    },
    /// The channel's events cannot be read with the sink's format.
    Format {
        /// The name of the event type.
        name: String,
        /// The first member of the format that differs.
        difference: Difference,
    },
    /// A format that is not valid in itself.
    InvalidFormat(#[from] FormatError),
    /// Two types of the specification have this name.
    TwoTypes(String),
    /// The capacity of a sink's queue is outside 1 to [`Limits::QUEUE`].
    Capacity { asked: u32 },
    /// The channel's patience is above [`Limits::PATIENCE`].
    Patience { asked: Nanos },
    /// The group's name is too long to be part of the name of its Q-channel.
    GroupName(Name),
    /// The group's level is outside 1 to 4.
    Level(u8),
    /// A range whose minimum is above its maximum.
    EmptyRange { metric: Key, min: i64, max: i64 },
    /// Q-channels are opened with their data channels and groups, not by themselves.
    Hidden,
}

impl Error {
    pub(crate) fn no_source(source: SourceId) -> Error {
        Error::Gone { what: "source", number: source.0 }
    }

    pub(crate) fn no_sink(sink: SinkId) -> Error {
        Error::Gone { what: "sink", number: sink.0 }
    }

    /// The message and the next step.
    pub fn problem(&self) -> Problem {
        match self {
            Error::Unknown(channel) => unknown(channel),
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
            Error::Forbidden { host, action, channel, why } => forbidden(host, *action, channel, why),
            Error::TooMany { what, asked, limit, remedy } => {
                Problem::new("channel_limit", format!("{asked} {what}, the limit is {limit}"), *remedy)
            }
            Error::NoType { channel, name, known } => {
                invalid(format!("`{}` has no events of type `{name}`", channel.name), format!("it has {known}"))
            }
            Error::Format { name, difference } => invalid(
                format!("events of type `{name}` cannot be read with this format: {difference}"),
                "take the channel's format",
            ),
            Error::InvalidFormat(error) => invalid(error.to_string(), "declare it as a C structure"),
            Error::TwoTypes(name) => {
                invalid(format!("the channel would have two types `{name}`"), "give them different names")
            }
            Error::Capacity { asked } => {
                invalid(format!("a queue of {asked} events"), format!("choose 1 to {} events", Limits::QUEUE))
            }
            Error::Patience { asked } => {
                invalid(format!("a patience of {asked} is too long"), format!("choose at most {}", Limits::PATIENCE))
            }
            Error::GroupName(name) => invalid(
                format!("the group's name `{name}` is too long"),
                format!("choose a name of at most {} bytes", Name::MAX - "group.".len()),
            ),
            Error::Level(level) => invalid(
                format!("a group cannot have level {level}"),
                "levels are 1 (connection), 2 (role), 3 (stream) and 4 (system)",
            ),
            Error::EmptyRange { metric, min, max } => invalid(
                format!("`{metric}` from {min} to {max}: the minimum is above the maximum"),
                "swap the two numbers",
            ),
            Error::Hidden => {
                invalid("a Q-channel is opened with its data channel or group, not by itself", "open the data channel")
            }
        }
    }
}

fn unknown(channel: &ChannelId) -> Problem {
    let message = format!("there is no channel `{}`", channel.name);
    Problem::new("no_such_channel", message, "create it, or see `qfabric channel ls` for those there are")
}

fn forbidden(host: &Name, action: Action, channel: &ChannelId, why: &str) -> Problem {
    let message = format!("{host} may not {} on `{}`: {why}", action.name(), channel.name);
    Problem::new("channel_forbidden", message, "change the access list, then run qfabric channel reload")
}

/// A value of the call is outside its range, or does not fit the channel.
fn invalid(message: impl Into<String>, next_step: impl Into<String>) -> Problem {
    Problem::new("channel_invalid", message, next_step)
}

/// Why an event was not submitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum SubmitError {
    /// A sink is slow and the channel blocks. Try again after [`crate::Output::Writable`] for the source, or at
    /// `until`.
    WouldBlock {
        /// From this time on the events for the slow sink are dropped.
        until: qfabric_types::Instant,
    },
    /// The event's deadline has passed. The source counts the event as late.
    Late { by: Nanos },
    /// This host has no such source.
    Gone(u32),
    /// The channel has no type of this number.
    NoType {
        asked: u16,
        /// The number of types.
        have: usize,
    },
    /// The payload is shorter than its format, or longer than the limit.
    Size {
        bytes: usize,
        /// The size of the format.
        least: u32,
        /// The limit of the channel.
        most: usize,
    },
    /// A priority above 7.
    Priority(u8),
    /// More attributes than an event may have.
    Attributes(usize),
    /// A text that is not an attribute's name.
    Key(#[from] crate::InvalidKey),
}

impl SubmitError {
    /// The message and the next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            SubmitError::WouldBlock { until } => {
                let next_step = format!("try again when the source is writable, or after {until:?}");
                return Problem::new("channel_slow", "a sink is slow", next_step);
            }
            SubmitError::Late { by } => {
                (format!("the event's deadline passed {by} ago"), "submit the event earlier, or with a later deadline")
            }
            SubmitError::Gone(source) => (
                format!("there is no source {source} on this host: it has left, or its channel was closed"),
                "open the source again",
            ),
            SubmitError::NoType { asked, have } => (
                format!("the channel has {have} types of events, numbered from 0; there is no type {asked}"),
                "choose one of them",
            ),
            SubmitError::Size { bytes, least, most } => (
                format!(
                    "an event of {bytes} bytes does not fit: its format has {least} bytes, the limit is {most} bytes"
                ),
                "choose a size between these two",
            ),
            SubmitError::Priority(given) => {
                (format!("priority {given} does not exist"), "choose a priority from 0 (lowest) to 7")
            }
            SubmitError::Attributes(given) => (
                format!("{given} attributes on an event, the limit is {}", Attributes::MAX_ON_EVENT),
                "leave some of them out",
            ),
            SubmitError::Key(error) => (error.to_string(), "choose a name of these characters"),
        };
        Problem::new("channel_invalid", message, next_step)
    }
}

/// Why a filter was not installed, changed or bound.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum FilterError {
    /// A refusal because of the filter's channel, types or author.
    Channel(#[from] Error),
    /// The text does not compile: the compiler's messages with their positions.
    #[error("{0}")]
    Text(String),
    /// The text's `input` or `output` does not fit the channel's events.
    Layout {
        /// `input` or `output`.
        structure: &'static str,
        event_type: String,
        /// The member that does not fit, and why.
        what: String,
    },
    /// Another host may not replace or remove a filter that it did not install.
    Owned {
        name: Name,
        /// The host that installed the filter, or the filter's own host.
        by: Name,
    },
    Unknown(FilterId),
    /// The filter has no such parameter.
    NoParameter {
        name: String,
        /// The names of the filter's parameters, for the message.
        known: String,
    },
    /// The event type has no single number of this name.
    NoField {
        event_type: String,
        field: String,
    },
    /// One call of the filter may execute more instructions than the host allows.
    TooLong {
        /// The number that one call may take.
        instructions: u64,
        limit: u32,
    },
    /// No engine can run the filter.
    Engine(String),
}

impl FilterError {
    /// The message and the next step.
    pub fn problem(&self) -> Problem {
        match self {
            FilterError::Channel(error) => error.problem(),
            FilterError::Text(text) => Problem::new("code", text, "see `qfabric ecode check`"),
            FilterError::Layout { structure, event_type, what } => invalid(
                format!("`struct {structure}` does not fit events of type `{event_type}`: {what}"),
                "compare it with the channel's format: qfabric channel show",
            ),
            FilterError::Owned { name, by } => {
                invalid(format!("the filter `{name}` was installed by {by}"), "choose another name")
            }
            FilterError::Unknown(id) => Problem::new(
                "no_such_filter",
                format!("there is no filter `{}` on `{}` here", id.name, id.channel.name),
                "see qfabric channel show",
            ),
            FilterError::NoParameter { name, known } => Problem::new(
                "no_such_filter",
                format!("the filter has no parameter `{name}`"),
                format!("it has {known}"),
            ),
            FilterError::NoField { event_type, field } => invalid(
                format!("events of type `{event_type}` have no number `{field}`"),
                "see its members with qfabric channel show",
            ),
            FilterError::TooLong { instructions, limit } => Problem::new(
                "channel_limit",
                format!("one call of the filter takes up to {instructions} instructions, the limit is {limit}"),
                "do less work in each loop, loop fewer times, or raise channels.max_filter_instructions on that host",
            ),
            FilterError::Engine(why) => invalid(format!("the filter cannot be run: {why}"), "see qfabric doctor"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_event_names_the_value_and_the_next_step() {
        let key = crate::InvalidKey { given: "a b".to_owned() };
        for (refusal, value) in [
            (SubmitError::Late { by: Nanos::from_millis(5) }, "5 ms"),
            (SubmitError::Gone(999), "999"),
            (SubmitError::NoType { asked: 7, have: 2 }, "no type 7"),
            (SubmitError::Size { bytes: 5, least: 8, most: 64 }, "5 bytes"),
            (SubmitError::Priority(9), "9"),
            (SubmitError::Attributes(17), "17"),
            (SubmitError::Key(key), "a b"),
        ] {
            let Problem { message, next_step, .. } = refusal.problem();
            assert!(message.contains(value) && !next_step.is_empty(), "{message}; {next_step}");
            assert!(refusal.to_string().starts_with(&message), "{refusal}");
        }
    }
}
