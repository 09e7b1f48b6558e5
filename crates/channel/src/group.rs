//! Groups of applications that are managed together (000 §2.2, 001 §3.3).

use qfabric_types::channel::{ChannelId, Name, Plane};
use serde::{Deserialize, Serialize};

use crate::{Error, Key};

/// Largest number of ranges of one application.
pub(crate) const MAX_QOS: usize = 64;

/// The range of one metric that is of use to an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosRange {
    /// Such as `frame_rate`.
    pub metric: Key,
    pub min: i64,
    pub max: i64,
}

/// An application's membership of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The application's name, the same on all its hosts.
    pub application: Name,
    pub group: Name,
    /// The group that this group is a part of.
    pub parent: Option<Name>,
    /// Level in the tree: 1 connection, 2 role, 3 stream, 4 system.
    pub level: u8,
    /// At most 64.
    pub qos: Vec<QosRange>,
}

impl Registration {
    /// The group's Q-channel; `None` if the group's name is too long.
    pub fn channel(&self) -> Option<ChannelId> {
        group_channel(&self.group)
    }
}

impl Registration {
    /// Checks all fields and returns the group's Q-channel.
    pub(crate) fn validate(&self) -> Result<ChannelId, Error> {
        if !(1..=4).contains(&self.level) {
            return Err(Error::Level(self.level));
        }
        if let Some(QosRange { metric, min, max }) = self.qos.iter().find(|range| range.min > range.max).cloned() {
            return Err(Error::EmptyRange { metric, min, max });
        }
        let (what, asked, limit) = ("ranges of quality", self.qos.len(), MAX_QOS);
        if asked > limit {
            return Err(Error::TooMany { what, asked, limit, remedy: "register several applications" });
        }
        self.channel().ok_or_else(|| Error::GroupName(self.group.clone()))
    }
}

/// A group's Q-channel; `None` if the group's name is too long for a channel's name.
pub(crate) fn group_channel(group: &Name) -> Option<ChannelId> {
    let name = format!("group.{group}").parse().ok()?;
    Some(ChannelId { plane: Plane::Quality, name })
}
