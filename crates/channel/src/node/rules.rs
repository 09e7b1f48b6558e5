//! A change of rules while there are members: afterwards the state is as if the host had started with the new rules.
//! Other hosts send their records again, and members that the rules deny are left out. This host's own members and
//! other hosts' filters are removed here.

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Plane};

use super::Node;
use crate::delivery::Channel;
use crate::{Action, Notary, Notice, Policy, SinkId, SourceId};

impl Node {
    /// Replaces the policy. All hosts are asked for their records again, so that the new rules apply to records that
    /// have arrived already. Members of this host that are no longer allowed are removed ([`Notice::Revoked`]), and so
    /// are filters of hosts that may no longer install any. This host's own filters and its managers' members stay.
    pub fn set_policy(&mut self, policy: Box<dyn Policy>, now: Instant) {
        self.config.policy = policy;
        self.exit.set_combiner(self.config.believed_combiner());
        self.end_forbidden(now);
        let config = &self.config;
        self.delivery.end_forbidden(|host, id| config.refusal(host, Action::Send, id).is_some());
        self.forget_filters(|config, channel, author| config.refusal(author, Action::Install, channel).is_some());
        self.unfollow(|config, channel, host| config.refusal(host, Action::Install, channel).is_some());
        for name in self.members.others() {
            self.members.ask(&name, now, &mut self.exit);
        }
        self.settle(now);
    }

    /// Replaces the notary, for example because certificates changed. Creations are verified by the new one from the
    /// next check on.
    pub fn set_notary(&mut self, notary: Option<Box<dyn Notary>>) {
        self.config.notary = notary;
    }

    fn end_forbidden(&mut self, now: Instant) {
        let open = self.delivery.channels.iter().map(|channel| (*channel.id).clone());
        let mut open: Vec<ChannelId> = open.filter(|id| id.plane == Plane::Data).collect();
        open.sort_unstable();
        for id in open {
            if !self.creator_may(&id) {
                self.end(&id, now);
                self.revoked(id, Action::Create);
                continue;
            }
            if self.config.permit(Action::Send, &id).is_err() && self.end_sources(&id, now) {
                self.revoked(id.clone(), Action::Send);
            }
            if self.config.permit(Action::Join, &id).is_err() && self.end_sinks(&id, now) {
                self.revoked(id, Action::Join);
            }
        }
    }

    /// Whether the channel's creator may create it under the present rules.
    fn creator_may(&self, id: &ChannelId) -> bool {
        let creator = self.members.held(id).map(|held| &held.origin.creator);
        creator.is_none_or(|creator| self.config.refusal(creator, Action::Create, id).is_none())
    }

    fn revoked(&mut self, channel: ChannelId, action: Action) {
        self.exit.notice(Notice::Revoked { channel, action });
    }

    /// Removes all sources of this host; returns whether there were any.
    fn end_sources(&mut self, id: &ChannelId, now: Instant) -> bool {
        let sources = self.numbers(id, |channel| channel.sources.keys().copied().collect());
        // The call cannot fail, because the sources exist.
        sources.iter().for_each(|source| _ = self.leave_source(SourceId(*source), now));
        !sources.is_empty()
    }

    fn end_sinks(&mut self, id: &ChannelId, now: Instant) -> bool {
        let sinks = self.numbers(id, |channel| channel.sinks.keys().copied().collect());
        sinks.iter().for_each(|sink| _ = self.leave_sink(SinkId(*sink), now));
        !sinks.is_empty()
    }

    fn numbers(&self, id: &ChannelId, of: impl Fn(&Channel) -> Vec<u32>) -> Vec<u32> {
        self.delivery.channels.find(id).map(of).unwrap_or_default()
    }
}
