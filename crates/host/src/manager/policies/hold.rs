//! At the source of one stream: keeps the rate that arrives at its target (rate control, intra-media synchronization).

use qfabric_control::adapt::rate::{RateControl, Terms};
use qfabric_types::AppId;
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::AttributeId;

use super::super::{Change, Controller, Decision, Decisions, Interest, Topic, View, What};
use super::{RATE, stream_of};

/// The controller.
#[derive(Debug)]
pub struct HoldRate {
    channel: ChannelId,
    policy: RateControl,
}

impl HoldRate {
    /// For the stream of a Q-channel that is sent at `rate` events per second at first.
    pub fn new(channel: &ChannelId, rate: f64, terms: Terms) -> Self {
        HoldRate { channel: channel.clone(), policy: RateControl::new(rate, terms) }
    }
}

impl Controller for HoldRate {
    fn name(&self) -> &str {
        "hold-rate"
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::on(&self.channel, Topic::Reading(AttributeId::of(RATE)))]
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        let What::Reading(reading) = &change.what else { return };
        let Some(rate) = self.policy.on_report(reading.value as f64 / 1e3, reading.over, view.now) else { return };
        let (application, amount): (AppId, i64) = (stream_of(&change.host), (rate * 1e3).round() as i64);
        decisions.push(Decision::Apply { application, attribute: AttributeId::of(RATE), amount });
    }
}
