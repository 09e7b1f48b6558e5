//! Filters: which sinks get an event.

use qfabric_types::channel::{ChannelId, Name};
use serde::{Deserialize, Serialize};

use crate::{Event, Key, MemberId};

/// Where in an event's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// When an event is dispatched to this host's sinks.
    In,
    /// When a source of this host submits an event: sees the sinks of all hosts.
    Out,
}

/// Which filter: a name may be given once for each channel and direction on a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Spot {
    /// On which channel.
    pub channel: ChannelId,
    /// In or out.
    pub direction: Direction,
    /// Its name. Filters are called in the order of their names.
    pub name: Name,
}

/// A filter that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterSpec {
    /// Where. A filter that is there is replaced between two events; parameters it had keep their values.
    pub spot: Spot,
    /// The only sink that it decides on; none: all.
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
pub enum Order {
    /// Install or replace one.
    Install(FilterSpec),
    /// Remove one.
    Remove(Spot),
    /// Change a parameter.
    Parameter(Spot, Key, i64),
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

/// The sinks that a filter decides on.
#[derive(Clone, Copy)]
pub struct Candidates<'a> {
    pub(crate) sinks: &'a [Candidate],
}

#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub member: MemberId,
    pub attributes: crate::Attributes,
}

impl Candidates<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        self.sinks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sinks.is_empty()
    }

    /// Which one.
    pub fn member(&self, index: usize) -> &MemberId {
        &self.sinks[index].member
    }

    /// What it says of itself.
    pub fn attribute(&self, index: usize, key: &str) -> Option<i64> {
        self.sinks[index].attributes.get(key)
    }
}

/// A filter in Rust: unsets the places of those that are not to get the event.
pub type Choose = Box<dyn FnMut(&Event<'_>, Candidates<'_>, &mut [bool]) + Send>;
