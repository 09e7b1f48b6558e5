use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource};
use crate::Nanos;
use crate::channel::Name;

/// Keeps one player of this host in step with another: the picture with its sound.
///
/// Both are applications of the group and report app.position, in nanoseconds of media time. The policy sends the
/// follower app.speed_ppm (play faster by this many millionths) and app.skip (skip this many nanoseconds once;
/// negative: pause for this time).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(
    feature = "cli",
    command(after_help = "Example: qfabric policy start media --group lips --leader sound --follower picture")
)]
#[serde(deny_unknown_fields)]
pub struct MediaPolicy {
    /// The group's name.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub group: Name,
    /// The application that sets the pace.
    #[cfg_attr(feature = "cli", arg(long, value_name = "APPLICATION"))]
    pub leader: Name,
    /// The application that keeps in step with the leader.
    #[cfg_attr(feature = "cli", arg(long, value_name = "APPLICATION"))]
    pub follower: Name,
    /// A difference up to this is not noticed.
    #[serde(default = "tolerance")]
    #[cfg_attr(feature = "cli", arg(long = "tolerance", value_name = "TIME", default_value = "80ms"))]
    pub tolerance_ns: Nanos,
    /// For a larger difference the follower skips or pauses; for a smaller one it plays faster or slower.
    #[serde(default = "jump")]
    #[cfg_attr(feature = "cli", arg(long = "jump", value_name = "TIME", default_value = "500ms"))]
    pub jump_ns: Nanos,
    /// The policy's name on this host; absent: `media.GROUP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, help = "Name of the policy [default: media.GROUP]"))]
    pub name: Option<Name>,
}

fn tolerance() -> Nanos {
    Nanos::from_millis(80)
}

fn jump() -> Nanos {
    Nanos::from_millis(500)
}

impl PolicyKind for MediaPolicy {
    fn given_name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    fn group(&self) -> Option<&Name> {
        Some(&self.group)
    }

    fn decides(&self) -> Vec<Resource> {
        vec![Resource::Step { group: self.group.clone(), follower: self.follower.clone() }]
    }
}

impl fmt::Display for MediaPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keeps within {} of {}", self.follower, self.tolerance_ns, self.leader)
    }
}
