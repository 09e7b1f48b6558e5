//! Handles decisions of other hosts' controllers: the rate of a stream is passed on to the applications with a sink of
//! it; a delay postpones the next report of the attribute that it names.

use std::sync::Arc;

use qfabric_host::manager::{Change, ChangeKind, Controller, Decisions, Interest, Topic, View};
use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Plane};
use qfabric_types::monitor::{QualityEvent, QualityKind};

use super::super::mailbox::{Audience, Delayed, Mailbox, Notification};

/// A controller that runs on every host, and decides nothing itself.
pub(in crate::channels) struct ControlListener(pub Arc<Mailbox>);

impl Controller for ControlListener {
    fn name(&self) -> &str {
        "ear"
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::anywhere(Topic::Control)]
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, _decisions: &mut Decisions) {
        let (ChangeKind::Control(event), Some(channel)) = (&change.what, &change.channel) else { return };
        let data = ChannelId { plane: Plane::Data, name: channel.name.clone() };
        match event {
            QualityEvent { kind: QualityKind::Delay, attribute, value, subject, .. } => self.0.delay(Delayed {
                channel: data,
                attribute: *attribute,
                name: subject.to_string(),
                by: Nanos::new((*value).max(0).unsigned_abs()),
            }),
            QualityEvent { kind: QualityKind::Rate | QualityKind::Level, attribute, value, .. } => {
                self.0.tell(Notification {
                    channel: data,
                    attribute: *attribute,
                    subject: view.host.to_string(),
                    amount: Some(*value),
                    audience: Audience::Sinks,
                    user: None,
                })
            }
            _ => {}
        }
    }
}
