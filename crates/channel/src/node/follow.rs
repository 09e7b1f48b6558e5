//! Applies each change of a host's record to all parts of the node.

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

use super::Node;
use crate::change::Change;
use crate::delivery::Step;
use crate::membership::News;
use crate::{Action, Config, HostRecord, Notice};

impl Node {
    /// Changes this host's record. [`Node::settle`] sends the change to the other hosts.
    pub(crate) fn change(&mut self, change: Change) {
        self.members.announce(&change);
        let host = self.config.host.clone();
        let done = self.follow(&host, change);
        debug_assert!(done, "the limits were checked before");
        self.members.count_change();
    }

    /// Changes another host's record.
    pub(crate) fn learn(&mut self, from: &Name, news: Option<News>) {
        let Some(News { changes, version }) = news else { return };
        for change in changes {
            self.follow(from, change);
        }
        self.members.set_version(from, version);
    }

    /// Applies one change of a host's record; returns false if the change was denied or does not fit.
    fn follow(&mut self, host: &Name, change: Change) -> bool {
        let Node { config, members, delivery, exit, .. } = self;
        let channel = change.channel().cloned();
        if let (Some(action), Some(channel)) = (config.denied(host, &change), &channel) {
            let why = config.policy.why_not(host, action, channel);
            exit.forbidden(host, action, channel, why);
            return false;
        }
        let step = Step::of(&members.directory, host, *host == config.host, &change);
        let competes = members.competes(&change);
        let may_send = || channel.as_ref().is_some_and(|id| config.refusal(host, Action::Send, id).is_none());
        delivery.end_sources(&members.directory, host, &change, may_send);
        if members.apply(host, change, exit).is_err() {
            return false;
        }
        if let Some(channel) = channel {
            delivery.reseat(&members.directory, host, &channel, step);
            if competes {
                self.touched.insert(channel);
            }
        }
        true
    }

    /// Called at the first frame of a host's new incarnation. Discards all state of the earlier incarnation, and reports
    /// its end: the network's report, if there is one, comes when nothing is known of it any more.
    pub(crate) fn begin(&mut self, host: &Name, incarnation: u64, now: Instant) {
        self.forget(host);
        self.members.begin(host, incarnation, now, &mut self.exit);
        self.delivery.greet(host, incarnation);
        self.exit.forget_host(host);
    }

    /// Removes a host's record, its members, and the filters that it shipped. Reports that a known host is gone.
    pub(crate) fn forget(&mut self, host: &Name) {
        let was_known = self.members.directory.host(host).is_some();
        // A host may have shipped filters before its record was complete.
        if let Some(record) = self.members.directory.host(host) {
            for change in record.changes_to(&HostRecord::default()) {
                self.follow(host, change);
            }
            self.members.forget(host);
        }
        self.forget_filters(|_, _, author| author == host);
        self.end_following(host);
        if was_known {
            self.exit.notice(Notice::HostVanished(host.clone()));
        }
    }

    /// Removes filters of other hosts for which `is_over` is true. Its arguments are this host's configuration, the
    /// channel and the filter's author.
    pub(crate) fn forget_filters(&mut self, is_over: impl Fn(&Config, &ChannelId, &Name) -> bool) {
        let Node { config, delivery, exit, .. } = self;
        for channel in delivery.channels.iter_mut() {
            for filter in channel.filters.forget(|author| is_over(config, &channel.id, author)) {
                let id = filter.id(&channel.id);
                let author = filter.author.unwrap_or_else(|| config.host.clone());
                exit.notice(Notice::FilterChanged { id, author });
            }
        }
    }

    /// Parameters no longer follow the hosts for which `is_over` is true. Its arguments are this host's configuration, the
    /// channel and the host that changes the parameter.
    pub(crate) fn unfollow(&mut self, is_over: impl Fn(&Config, &ChannelId, &Name) -> bool) {
        let Node { config, delivery, .. } = self;
        for channel in delivery.channels.iter_mut() {
            channel.filters.unfollow(|host| is_over(config, &channel.id, host));
        }
    }

    /// Every method that changes members calls this at its end.
    pub(crate) fn settle(&mut self, now: Instant) {
        while let Some(channel) = self.touched.pop_first() {
            self.stand(&channel, now);
        }
        // Send the changes first: a new member has to be known before new sources welcome it.
        self.members.flush(now, &mut self.exit);
        self.delivery.settle(&self.members.directory, now, &mut self.exit);
    }
}
