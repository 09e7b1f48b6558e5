//! At the source of a data channel: all its sinks show the same moment at the same time (inter-sink synchronization).
//!
//! Sinks report [`NEED`] on the Q-channel: how long after its sending they could show an event at the earliest. All are
//! told [`SHOW`]: how long after its sending they are to show it. When an event was sent each knows by its own clock
//! (`qfabric_channel` measures how clocks differ), so that nobody's clock has to be right. A host whose application left
//! the group of the channel's name is waited for no more.

use std::collections::BTreeMap;

use qfabric_control::adapt::inter_sink::{InterSink, Terms};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityKind};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, Topic, View};
use super::{stream_of, told};

/// From sending to the earliest showing, in ns: the attribute's name.
pub const NEED: &str = "app.show_need";

/// From sending to showing, as decided, in ns.
pub const SHOW: &str = "app.show_delay";

/// The controller.
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

    /// A sink that is new has not heard of what holds already.
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

    /// Nobody waits for a host that shows nothing.
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
