//! Policies by which several do one thing: show together, keep in step, serve together, degrade together.

use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::channel::Name;

/// At the source of a channel: all its sinks show an event at the same time.
///
/// Applications with a sink report `app.show_need` by a registration in the group of the channel's name: ns from an
/// event's sending to the earliest moment at which they can show it. They are told `app.show_delay`: when to show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SyncPolicy {
    /// Its name on this host; none: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The data channel.
    pub channel: Name,
    /// Added to what the latest sink needs.
    #[serde(default = "margin")]
    pub margin_ns: Nanos,
    /// No more delay than this, margin included: who needs more is late.
    #[serde(default = "bound")]
    pub bound_ns: Nanos,
}

fn margin() -> Nanos {
    Nanos::from_millis(10)
}

fn bound() -> Nanos {
    Nanos::from_millis(1_000)
}

/// On a host with two players of a group: one keeps in step with the other, as the picture with its sound.
///
/// Both report `app.position`, in ns of media time. The follower is told `app.speed_ppm` (millionths that it is to play
/// faster) and `app.skip` (ns to leave out once; negative: to stand still for so long).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MediaPolicy {
    /// Its name on this host; none: `KIND.GROUP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The group that both applications are registered in.
    pub group: Name,
    /// The application that plays as it likes: the sound.
    pub leader: Name,
    /// The application that keeps in step with it: the picture.
    pub follower: Name,
    /// A difference up to this is not seen.
    #[serde(default = "tolerance")]
    pub tolerance_ns: Nanos,
    /// Beyond this the follower leaves something out or stands still, where otherwise it plays faster or slower.
    #[serde(default = "jump")]
    pub jump_ns: Nanos,
}

fn tolerance() -> Nanos {
    Nanos::from_millis(80)
}

fn jump() -> Nanos {
    Nanos::from_millis(500)
}

/// On a host with a server: requests that wait too long go to the least loaded of the others.
///
/// A server registers in the group of the channel's name and reports by that `app.request` (its own request of that
/// number waits), `app.copy` (a copy for another server waits) and `app.begun` (waits no more). It is told `app.forward`
/// (send that request to the others: of its events of `event_type` each goes to the `copies` sinks with the smallest
/// attribute `load`, none of them here) and, with `cancel`, `app.drop` (somebody else has begun that copy).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BalancePolicy {
    /// Its name on this host; none: `KIND.CHANNEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The data channel.
    pub channel: Name,
    /// What has waited for so long is forwarded.
    #[serde(default = "patience")]
    pub patience_ns: Nanos,
    /// To how many others, 1 to 16.
    #[serde(default = "one")]
    pub copies: u32,
    /// Who begins a copy cancels the others.
    #[serde(default)]
    pub cancel: bool,
    /// The type of events that requests travel as.
    #[serde(default = "request")]
    pub event_type: String,
}

fn patience() -> Nanos {
    Nanos::from_millis(2_500)
}

fn one() -> u32 {
    1
}

fn request() -> String {
    "request".to_owned()
}

/// On a host that feeds several channels: divides what there is for all of them over the tree of streams, roles and
/// connections, and keeps links.
///
/// Sinks say what they want by registrations in groups of the channels' names, as for `roles`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TreePolicy {
    /// Its name on this host.
    pub name: Name,
    /// Bits per second for all streams together.
    pub capacity: u64,
    /// The channels.
    pub streams: Vec<TreeStream>,
    /// What is degraded alike, and stops together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<TreeLink>,
}

/// A channel of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TreeStream {
    /// The data channel.
    pub channel: Name,
    /// Bits of one event on the way.
    pub event_bits: u64,
    /// Its part of what is left above all minima.
    #[serde(default = "weight")]
    pub weight: f64,
}

fn weight() -> f64 {
    1.0
}

/// Channels of a tree that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TreeLink {
    /// Which.
    pub channels: Vec<Name>,
    /// At every sink that has several of them its connections, such as lips and voice; or else the streams as wholes.
    #[serde(default)]
    pub at_each_sink: bool,
}

#[cfg(test)]
mod tests {
    use super::super::Policy;
    use super::*;

    #[test]
    fn what_is_not_said_is_as_the_seeds_have_it() {
        let policy: Policy = serde_json::from_str(r#"{"kind": "balance", "channel": "web"}"#).unwrap();
        assert_eq!((policy.name().unwrap().as_str(), policy.paced(false).len()), ("balance.web", 0));
        let Policy::Balance(BalancePolicy { copies: 1, cancel: false, patience_ns, event_type, .. }) = policy else {
            panic!("another kind")
        };
        assert_eq!((patience_ns, event_type.as_str()), (Nanos::from_millis(2_500), "request"));
        let text = r#"{"kind": "media", "group": "lips", "leader": "sound", "follower": "picture"}"#;
        let media: Policy = serde_json::from_str(text).unwrap();
        assert_eq!((media.name().unwrap().as_str(), media.channel().as_str()), ("media.lips", "lips"));
    }

    #[test]
    fn a_tree_decides_the_rates_of_all_its_streams() {
        let text = r#"{"kind": "tree", "name": "class", "capacity": 1000000,
            "streams": [{"channel": "film", "event_bits": 9040}, {"channel": "sound", "event_bits": 2000}],
            "links": [{"channels": ["film", "sound"], "at_each_sink": true}]}"#;
        let tree: Policy = serde_json::from_str(text).unwrap();
        assert_eq!(tree.paced(false).iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["film", "sound"]);
        assert_eq!(tree.to_string(), "1000000 bit/s for film, sound; linked at each sink: film, sound");
        assert_eq!(serde_json::from_str::<Policy>(&serde_json::to_string(&tree).unwrap()).unwrap(), tree);
    }

    #[test]
    fn two_that_would_tell_the_same_applications_different_things_are_rivals() {
        let sync = |channel: &str| -> Policy {
            serde_json::from_str(&format!(r#"{{"kind": "sync", "channel": "{channel}"}}"#)).unwrap()
        };
        assert!(sync("film").rivals(&sync("film")).is_some() && sync("film").rivals(&sync("sound")).is_none());
        let hold: Policy = serde_json::from_str(r#"{"kind": "hold", "channel": "film", "rate": 25}"#).unwrap();
        assert!(sync("film").rivals(&hold).is_none(), "when is no matter of how many");
    }
}
