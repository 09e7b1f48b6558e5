//! At the receiver of reports: asks excess senders of a time slot to report later, so that reports do not arrive
//! all at once.

use std::collections::BTreeMap;

use qfabric_control::adapt::implosion::{Implosion, Rule};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityKind};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, Topic, View};
use super::{stream_of, told};

#[derive(Debug)]
pub struct Spread {
    channel: ChannelId,
    /// Name of the attribute whose reports are spread.
    attribute: String,
    policy: Implosion,
    senders: BTreeMap<u64, Name>,
}

impl Spread {
    /// For reports of an attribute on a Q-channel, one per `period` from each sender, in slots of a tenth of the
    /// period.
    pub fn new(channel: &ChannelId, attribute: &str, period: Nanos, rule: Rule, seed: u64, now: Instant) -> Self {
        let policy = Implosion::new(rule, period, 10, seed, now);
        Spread { channel: channel.clone(), attribute: attribute.to_owned(), policy, senders: BTreeMap::new() }
    }
}

impl Controller for Spread {
    fn name(&self) -> &str {
        "spread"
    }

    fn interests(&self) -> Vec<Interest> {
        let reports = Interest::on(&self.channel, Topic::Reading(AttributeId::of(&self.attribute)));
        vec![reports, Interest::anywhere(Topic::Members)]
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        let AppId(sender) = stream_of(&change.host);
        match &change.what {
            ChangeKind::Reading(_) => {
                self.senders.entry(sender).or_insert_with(|| change.host.clone());
                for request in self.policy.on_report(sender, view.now) {
                    let Some(host) = self.senders.get(&request.sink) else { continue };
                    let delay = request.delay.get() as i64;
                    let event = told("spread", QualityKind::Delay, &self.attribute, delay, view.now);
                    decisions.push(Decision::Tell {
                        channel: self.channel.clone(),
                        to: Recipient::Host(host.clone()),
                        event,
                    });
                }
            }
            ChangeKind::HostGone => drop(self.senders.remove(&sender)),
            _ => {}
        }
    }
}
