//! Zenoh's keys. Each ends in the sender's name (a token in the number of the incarnation): access control checks this
//! part.
//!
//! ```text
//! qf/REALM/a/SENDER              to everyone          qf/REALM/d/CHANNEL/SENDER   a data channel
//! qf/REALM/h/DEST/SENDER         to one host          qf/REALM/q/CHANNEL/SENDER   a Q-channel
//! qf/REALM/live/SENDER/NUMBER    a token: it is there
//! ```

use qfabric_channel::{DestinationRef, Incarnation};
use qfabric_types::channel::{ChannelId, Name, Plane};

/// The keys of a realm.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub realm: Name,
}

impl Keys {
    /// The key to which a host publishes.
    pub(crate) fn to(&self, to: DestinationRef<'_>, sender: &str) -> String {
        match to {
            DestinationRef::Everyone => self.everyone(sender),
            DestinationRef::Host(host) => self.host(host.as_str(), sender),
            DestinationRef::Channel(channel) => self.channel(channel.plane, channel.name.as_str(), sender),
        }
    }

    pub(crate) fn everyone(&self, sender: &str) -> String {
        format!("qf/{}/a/{sender}", self.realm)
    }

    pub(crate) fn host(&self, host: &str, sender: &str) -> String {
        format!("qf/{}/h/{host}/{sender}", self.realm)
    }

    pub(crate) fn channel(&self, plane: Plane, channel: &str, sender: &str) -> String {
        let plane = if plane == Plane::Data { 'd' } else { 'q' };
        format!("qf/{}/{plane}/{channel}/{sender}", self.realm)
    }

    pub(crate) fn wanted(&self, channel: &ChannelId) -> String {
        self.channel(channel.plane, channel.name.as_str(), "*")
    }

    pub(crate) fn life(&self, host: &str, incarnation: &str) -> String {
        format!("qf/{}/live/{host}/{incarnation}", self.realm)
    }
}

/// The sender in a frame's key.
pub(crate) fn sender(key: &str) -> Option<Name> {
    key.rsplit('/').next()?.parse().ok()
}

/// The host and incarnation in a token's key.
pub(crate) fn life(key: &str) -> Option<(Name, Incarnation)> {
    let mut parts = key.rsplit('/');
    let incarnation = u64::from_str_radix(parts.next()?, 16).ok()?;
    Some((parts.next()?.parse().ok()?, Incarnation(incarnation)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_names_its_sender_last() {
        let keys = Keys { realm: "r".parse().unwrap() };
        let (host, name): (Name, Name) = ("b".parse().unwrap(), "video".parse().unwrap());
        let channel = ChannelId { plane: Plane::Quality, name };
        for to in [DestinationRef::Everyone, DestinationRef::Host(&host), DestinationRef::Channel(&channel)] {
            assert_eq!(sender(&keys.to(to, "a")).unwrap().as_str(), "a");
        }
        assert_eq!(keys.wanted(&channel), "qf/r/q/video/*");
        assert_eq!(life(&keys.life("a", "00ff")), Some(("a".parse().unwrap(), Incarnation(255))));
        assert_eq!(life("qf/r/live/a/x"), None);
    }
}
