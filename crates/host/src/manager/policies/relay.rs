//! At a sink: applies control events of its source's controllers to this host's application or monitor.

use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::{AttributeId, QualityKind};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Topic, View};
use super::DELAY;

/// Applies control events of some kinds to the application that they name.
#[derive(Debug)]
pub struct Relay {
    channel: ChannelId,
    kinds: Vec<QualityKind>,
}

impl Relay {
    /// For these kinds of control events on a Q-channel.
    pub fn new(channel: &ChannelId, kinds: &[QualityKind]) -> Self {
        Relay { channel: channel.clone(), kinds: kinds.to_vec() }
    }
}

impl Controller for Relay {
    fn name(&self) -> &str {
        "relay"
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::on(&self.channel, Topic::Control)]
    }

    fn changed(&mut self, change: &Change, _view: &View<'_>, decisions: &mut Decisions) {
        let ChangeKind::Control(event) = &change.what else { return };
        if self.kinds.contains(&event.kind) {
            let (application, amount) = (event.application, event.value);
            // The attribute of a delay request names the report to delay; the delay itself is applied.
            let is_delay = event.kind == QualityKind::Delay;
            let attribute = if is_delay { AttributeId::of(DELAY) } else { event.attribute };
            decisions.push(Decision::Apply { application, attribute, amount });
        }
    }
}
