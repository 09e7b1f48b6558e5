//! Inter-sink synchronization at the source of a data channel: all its sinks show an event at the same time.
//!
//! Sinks report [`NEED`] on the Q-channel: the shortest time from the sending of an event to its showing. All sinks
//! receive [`SHOW`], the time from sending to showing. Each sink converts the sending time to its own clock
//! (`qfabric_channel` measures the clock offsets), so no clock has to be right. A host whose application left the
//! group of the channel's name is not waited for any more.

use std::collections::BTreeMap;

use qfabric_control::adapt::inter_sink::{InterSink, Terms};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityKind};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, Topic, View};
use super::{stream_of, told};

/// Name of the attribute by which a sink reports the shortest possible time from sending to showing, in ns.
pub const NEED: &str = "app.show_need";

/// Name of the attribute for the decided time from sending to showing, in ns.
pub const SHOW: &str = "app.show_delay";

#[derive(Debug)]
pub struct SinkSync {
    channel: ChannelId,
    policy: InterSink,
    sinks: BTreeMap<u64, Name>,
}

impl SinkSync {
    /// For the sinks of a data channel, on its Q-channel.
    pub fn new(channel: &ChannelId, terms: Terms, now: Instant) -> Self {
        SinkSync { channel: channel.clone(), policy: InterSink::new(terms, now), sinks: BTreeMap::new() }
    }

    fn tell(&self, to: Recipient, common: Nanos, view: &View<'_>, decisions: &mut Decisions) {
        let event = told(self.name(), QualityKind::Level, SHOW, common.get() as i64, view.now);
        decisions.push(Decision::Tell { channel: self.channel.clone(), to, event });
    }

    /// Handles a report. A new sink gets the present decision, because it missed the earlier message.
    fn reported(&mut self, host: &Name, needs: i64, view: &View<'_>, decisions: &mut Decisions) {
        let AppId(sink) = stream_of(host);
        let fresh = self.sinks.insert(sink, host.clone()).is_none();
        let needs = Nanos::new(needs.max(0) as u64);
        match self.policy.on_report(sink, needs, view.now) {
            Some(common) => self.tell(Recipient::All, common, view, decisions),
            None if fresh => self.tell(Recipient::Host(host.clone()), self.policy.common(), view, decisions),
            None => {}
        }
    }

    /// Removes a host that no longer shows events, so that no sink waits for it.
    fn gone(&mut self, host: &Name, view: &View<'_>, decisions: &mut Decisions) {
        let AppId(sink) = stream_of(host);
        if self.sinks.remove(&sink).is_some()
            && let Some(common) = self.policy.leave(sink, view.now)
        {
            self.tell(Recipient::All, common, view, decisions);
        }
    }
}

impl Controller for SinkSync {
    fn name(&self) -> &str {
        "sink-sync"
    }

    fn interests(&self) -> Vec<Interest> {
        let reports = Interest::on(&self.channel, Topic::Reading(AttributeId::of(NEED)));
        vec![reports, Interest::anywhere(Topic::Members)]
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        match &change.what {
            ChangeKind::Reading(reading) => self.reported(&change.host, reading.value, view, decisions),
            ChangeKind::HostGone => self.gone(&change.host, view, decisions),
            ChangeKind::Left(left) if left.group == self.channel.name => self.gone(&change.host, view, decisions),
            _ => {}
        }
    }
}
