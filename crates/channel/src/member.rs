//! Sources and sinks.

use qfabric_types::channel::Name;
use qfabric_types::format::Format;
use serde::{Deserialize, Serialize};

use crate::{Attributes, Limits, MemberId};

/// The options of a new source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSpec {
    /// The application that owns the source; shown to users.
    pub application: Option<Name>,
    /// The user of this host that owns the source, so that an OUT-filter of one user acts on that user's events only
    /// ([`crate::Node::install_for`]). Other hosts do not receive this number.
    pub user: Option<u32>,
    /// Attributes that filters can read.
    pub attributes: Attributes,
}

/// The options of a new sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSpec {
    /// The application that owns the sink; shown to users.
    pub application: Option<Name>,
    /// Names of the types that the sink receives; empty: all types of the channel.
    pub types: Vec<String>,
    /// The sink's own formats, by the name of the type. The sink is refused if it cannot read the channel's events with
    /// them.
    pub formats: Vec<Format>,
    /// Attributes that OUT-filters can read.
    pub attributes: Attributes,
    /// The number of events that the queue holds for [`crate::Node::take`], from 1 to [`Limits::QUEUE`]. The channel's
    /// back-pressure rule decides what happens when the queue is full.
    pub capacity: u32,
}

impl Default for SinkSpec {
    /// All types, a queue of 256 events.
    fn default() -> SinkSpec {
        let (application, types, formats) = (None, vec![], vec![]);
        SinkSpec { application, types, formats, attributes: Attributes::default(), capacity: 256 }
    }
}

/// A source as it is in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInfo {
    pub application: Option<Name>,
    pub attributes: Attributes,
}

/// A sink as it is in the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkInfo {
    pub application: Option<Name>,
    /// The types that the sink receives, one bit each.
    pub types: u64,
    /// The number of events that the sink can hold; 0: the sink holds no events and is never full.
    pub capacity: u32,
    pub attributes: Attributes,
}

impl SinkInfo {
    pub fn wants(&self, event_type: u16) -> bool {
        usize::from(event_type) < Limits::TYPES && self.types & 1 << event_type != 0
    }
}

/// A sink and its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub member: MemberId,
    pub info: SinkInfo,
}
