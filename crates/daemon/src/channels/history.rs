//! Events of channels as records of the timeline: the same number on every host ties the source to its sinks.

use qfabric_channel::{Event, SourceId};
use qfabric_types::Instant;
use qfabric_types::api::timeline::TimelineEvent;
use qfabric_types::channel::Name;

use super::Fabric;
use crate::auth::Peer;
use crate::timeline::Frequent;

impl Fabric {
    /// Records that a source of this host submitted its event `number`.
    pub(super) fn record_submitted(&self, peer: Peer, source: SourceId, number: u64, bytes: usize, now: Instant) {
        self.timeline.frequent(Frequent::Submitted, peer.owner.uid, now, || {
            let channel = self.network.look(|node| node.channel_of_source(source).map(|id| id.name.to_string()));
            TimelineEvent::Channel {
                channel: channel.unwrap_or_default(),
                received: false,
                flow: flow(&self.network.host, source, number),
                pid: peer.pid,
                bytes: bytes as u64,
            }
        });
    }

    /// Records that a sink of this host receives an event.
    pub(super) fn record_received(&self, peer: Peer, event: &Event<'_>, now: Instant) {
        self.timeline.frequent(Frequent::Received, peer.owner.uid, now, || TimelineEvent::Channel {
            channel: event.channel.name.to_string(),
            received: true,
            flow: flow(event.host, event.source, event.number),
            pid: peer.pid,
            bytes: event.payload.len() as u64,
        });
    }
}

/// A number for an event that its source's host and the hosts of its sinks compute alike: FNV-1a with 64 bits.
fn flow(host: &Name, source: SourceId, number: u64) -> u64 {
    let bytes = host.as_str().bytes().chain([0]).chain(source.0.to_le_bytes()).chain(number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_other_hosts_sources_and_numbers_have_other_arrows() {
        let (a, b): (Name, Name) = ("a".parse().unwrap(), "b".parse().unwrap());
        let all = [(&a, 1, 1), (&b, 1, 1), (&a, 2, 1), (&a, 1, 2)].map(|(h, s, n)| flow(h, SourceId(s), n));
        assert_eq!(std::collections::BTreeSet::from(all).len(), 4);
        assert_eq!(all[0], flow(&a, SourceId(1), 1));
    }
}
