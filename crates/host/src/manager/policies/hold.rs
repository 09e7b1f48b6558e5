//! Rate control at the source: keeps the rate of events that arrive at each host at its target (intra-media
//! synchronization).

use std::collections::BTreeMap;

use qfabric_control::adapt::rate::{RateControl, Terms};
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::AttributeId;

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Topic, View};
use super::{RATE, stream_of};

#[derive(Debug)]
pub struct HoldRate {
    channel: ChannelId,
    first: RateControl,
    streams: BTreeMap<u64, RateControl>,
}

impl HoldRate {
    /// For the streams of a Q-channel, which are sent at `rate` events per second at first.
    pub fn new(channel: &ChannelId, rate: f64, terms: Terms) -> Self {
        HoldRate { channel: channel.clone(), first: RateControl::new(rate, terms), streams: BTreeMap::new() }
    }
}

impl Controller for HoldRate {
    fn name(&self) -> &str {
        "hold-rate"
    }

    fn interests(&self) -> Vec<Interest> {
        let reports = Interest::on(&self.channel, Topic::Reading(AttributeId::of(RATE)));
        vec![reports, Interest::anywhere(Topic::Members)]
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        let application = stream_of(&change.host);
        let reading = match &change.what {
            ChangeKind::Reading(reading) => reading,
            ChangeKind::HostGone => {
                self.streams.remove(&application.0);
                return;
            }
            _ => return,
        };
        let policy = self.streams.entry(application.0).or_insert_with(|| self.first.clone());
        let Some(rate) = policy.on_report(reading.value as f64 / 1e3, reading.over, view.now) else { return };
        let amount = (rate * 1e3).round() as i64;
        decisions.push(Decision::Apply { application, attribute: AttributeId::of(RATE), amount });
    }
}
