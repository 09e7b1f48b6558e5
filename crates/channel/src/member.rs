//! Sources and sinks.

use qfabric_types::channel::Name;
use qfabric_types::format::Format;
use serde::{Deserialize, Serialize};

use crate::{Attributes, Limits, MemberId};

/// What a source is wanted to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSpec {
    /// Whose it is; for people.
    pub application: Option<Name>,
    /// The user of this host whose it is, so that an OUT-filter of one user acts on that user's events alone
    /// ([`crate::Node::install_for`]). Other hosts do not hear of it.
    pub user: Option<u32>,
    /// What filters can know of it.
    pub attributes: Attributes,
}

/// What a sink is wanted to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSpec {
    /// Whose it is; for people.
    pub application: Option<Name>,
    /// Names of the types it wants; none: all of the channel's.
    pub types: Vec<String>,
    /// Its own idea of formats, by the name of the type: refused where it cannot read the channel's.
    pub formats: Vec<Format>,
    /// What OUT-filters can know of it.
    pub attributes: Attributes,
    /// How many events its queue keeps for [`crate::Node::take`], from 1 to [`Limits::QUEUE`]. The channel's policy says
    /// what happens to one more.
    pub capacity: u32,
}

impl Default for SinkSpec {
    /// All types, into a queue of 256.
    fn default() -> SinkSpec {
        let (application, types, formats) = (None, vec![], vec![]);
        SinkSpec { application, types, formats, attributes: Attributes::default(), capacity: 256 }
    }
}

/// A source as all hosts know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInfo {
    /// Whose it is.
    pub application: Option<Name>,
    /// What filters can know of it.
    pub attributes: Attributes,
}

/// A sink as all hosts know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkInfo {
    /// Whose it is.
    pub application: Option<Name>,
    /// The types it wants, one bit each.
    pub types: u64,
    /// Events it can keep; 0: it keeps none, and is never full.
    pub capacity: u32,
    /// What OUT-filters can know of it.
    pub attributes: Attributes,
}

impl SinkInfo {
    /// Whether it wants events of the type.
    pub fn wants(&self, event_type: u16) -> bool {
        usize::from(event_type) < Limits::TYPES && self.types & 1 << event_type != 0
    }
}

/// A sink, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub member: MemberId,
    pub info: SinkInfo,
}
