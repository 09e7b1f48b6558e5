//! Which filter, and what it is to be.

pub use qfabric_types::api::channel::Direction;
use qfabric_types::channel::{ChannelId, Name};
use serde::{Deserialize, Serialize};

use crate::{Key, MemberId};

/// Which filter: a name may be given once for each channel and direction on a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Spot {
    /// On which channel.
    pub channel: ChannelId,
    /// In or out.
    pub direction: Direction,
    /// Its name. Filters for all sinks are called first, then those for single sinks; both in the order of their names.
    pub name: Name,
}

/// A filter that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterSpec {
    /// Where. A filter that is there is replaced between two events; parameters it had keep their values.
    pub spot: Spot,
    /// The only sink that it decides on, and whose copy of an event it may change; none: all.
    pub sink: Option<MemberId>,
    /// Names of the types it is called for; none: all. Others pass.
    pub types: Vec<String>,
    /// E-code: `struct input { …members of the event…; int sinks; struct { long load; } sink[100]; }`, where wanted
    /// `struct output { unsigned char chosen[100]; }`, and what decides. Verdict 0: nobody.
    pub text: String,
    /// First values of its attributes (`get_attribute(name)`).
    pub parameters: Vec<(Key, i64)>,
}

/// What other hosts are asked to do with their filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterCommand {
    /// Install or replace one.
    Install(FilterSpec),
    /// Remove one.
    Remove(Spot),
    /// Change a parameter.
    Parameter(Spot, Key, i64),
}

impl FilterCommand {
    /// Which filter it is about.
    pub fn spot(&self) -> &Spot {
        match self {
            FilterCommand::Install(filter) => &filter.spot,
            FilterCommand::Remove(spot) | FilterCommand::Parameter(spot, ..) => spot,
        }
    }
}

/// From now on a number in events of one channel is a parameter of a filter of another: a Q-filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Which filter.
    pub filter: Spot,
    /// Which of its parameters.
    pub parameter: Key,
    /// Where the events come from; it has to be open here.
    pub channel: ChannelId,
    /// Name of their type.
    pub event_type: String,
    /// Name of their member, a single number.
    pub field: String,
}
