//! Specifications of filters, commands about filters, and bindings.

pub use qfabric_types::api::channel::Direction;
use qfabric_types::channel::{ChannelId, Name};
use serde::{Deserialize, Serialize};

use crate::{Key, MemberId};

/// Identifies a filter: a name is unique for each channel and direction on a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FilterId {
    pub channel: ChannelId,
    pub direction: Direction,
    /// Filters for all sinks are called first, then those for single sinks; both in the order of their names.
    pub name: Name,
}

/// A filter to install.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterSpec {
    /// An existing filter here is replaced between two events; its parameters keep their values.
    pub id: FilterId,
    /// The only sink that the filter decides about, and whose copy of an event it may change; `None`: all sinks.
    pub sink: Option<MemberId>,
    /// Names of the types the filter is called for; empty: all types. Events of other types pass.
    pub types: Vec<String>,
    /// E-code: `struct input { …members of the event…; int sinks; struct { long load; } sink[100]; }`, an optional
    /// `struct output { unsigned char chosen[100]; }`, and the statements. With verdict 0 no sink receives the event.
    pub text: String,
    /// Initial values of the attributes (`get_attribute(name)`).
    pub parameters: Vec<(Key, i64)>,
}

/// A command to other hosts about their filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterCommand {
    /// Install or replace a filter.
    Install(FilterSpec),
    Remove(FilterId),
    /// Change a parameter's value.
    Parameter(FilterId, Key, i64),
}

impl FilterCommand {
    /// The filter that the command is about.
    pub fn id(&self) -> &FilterId {
        match self {
            FilterCommand::Install(filter) => &filter.id,
            FilterCommand::Remove(id) | FilterCommand::Parameter(id, ..) => id,
        }
    }
}

/// Makes a number in events of one channel a parameter of a filter of another channel: a Q-filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub filter: FilterId,
    pub parameter: Key,
    /// The channel of the events; it has to be open on this host.
    pub channel: ChannelId,
    /// The name of the events' type.
    pub event_type: String,
    /// The name of the member of the format; it has to be a single number.
    pub field: String,
}
