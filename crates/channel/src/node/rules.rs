//! Other rules, while there are members.
//!
//! What a host that starts now would not allow is gone afterwards: other hosts' members are left out by the records that
//! are asked for anew, this host's own and other hosts' filters end here.

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name, Plane};

use super::Node;
use crate::{Action, Notice, Policy, SinkId, SourceId};

impl Node {
    /// Other rules from now on. All hosts are asked for their records again, so that the new rules hold for what they
    /// had told before. Members of this host that may not be any more are ended ([`Notice::Revoked`]), filters of hosts
    /// that may not install any more are removed. This host's own filters and its managers' members stay.
    pub fn set_policy(&mut self, policy: Box<dyn Policy>, now: Instant) {
        self.config.policy = policy;
        self.end_forbidden(now);
        self.forget_forbidden_filters();
        for name in self.peers.keys().cloned().collect::<Vec<_>>() {
            self.ask(&name, now);
        }
        self.settle(now);
    }

    fn end_forbidden(&mut self, now: Instant) {
        let places = self.places.iter().filter(|(id, _)| id.plane == Plane::Data);
        for (id, place) in places.map(|(id, place)| (id.clone(), *place)).collect::<Vec<_>>() {
            if !self.creator_may(&id) {
                self.end(place, now);
                self.revoked(id, Action::Create);
                continue;
            }
            if self.permit(Action::Send, &id).is_err() && self.end_sources(place, now) {
                self.revoked(id.clone(), Action::Send);
            }
            if self.permit(Action::Join, &id).is_err() && self.end_sinks(place, now) {
                self.revoked(id, Action::Join);
            }
        }
    }

    /// Whether the channel is one that other hosts believe in.
    fn creator_may(&self, id: &ChannelId) -> bool {
        let held = self.directory.host(&self.host).and_then(|record| record.channels.get(id));
        held.is_none_or(|held| self.config.policy.allows(&held.origin.creator, Action::Create, id))
    }

    fn revoked(&mut self, channel: ChannelId, action: Action) {
        self.out.notice(Notice::Revoked { channel, action });
    }

    /// Whether there were any.
    fn end_sources(&mut self, place: u32, now: Instant) -> bool {
        let sources = self.at(place).map(|channel| channel.sources.keys().copied().collect::<Vec<_>>());
        let sources = sources.unwrap_or_default();
        // They are there.
        sources.iter().for_each(|source| _ = self.leave_source(SourceId(*source), now));
        !sources.is_empty()
    }

    fn end_sinks(&mut self, place: u32, now: Instant) -> bool {
        let sinks = self.at(place).map(|channel| channel.sinks.keys().copied().collect::<Vec<_>>());
        let sinks = sinks.unwrap_or_default();
        sinks.iter().for_each(|sink| _ = self.leave_sink(SinkId(*sink), now));
        !sinks.is_empty()
    }

    fn forget_forbidden_filters(&mut self) {
        let Node { config, channels, out, .. } = self;
        for channel in channels.iter_mut().flatten() {
            let id = channel.id.clone();
            let forbidden = |author: &Name| !config.policy.allows(author, Action::Install, &id);
            for filters in [&mut channel.filters_in, &mut channel.filters_out] {
                for filter in filters.extract_if(.., |filter| filter.author.as_ref().is_some_and(forbidden)) {
                    let spot = filter.spot(&id);
                    let author = filter.author.unwrap_or_else(|| config.host.clone());
                    out.notice(Notice::FilterChanged { spot, author });
                }
            }
        }
    }
}
