//! The rival: the paper's CPU manager, which moves a real-time priority by one per report. Source: thesis §5.4.

use qfabric_control::priority;
use qfabric_host::manager::policies::{GENERATED, RATE, SHOWN};
use qfabric_host::manager::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Topic, View};
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::AttributeId;
use qfabric_types::{Instant, Nanos};

use super::WANTED;
use super::apps::member;

/// Name of the attribute for the priority, 1 to 99.
pub(super) const PRIORITY: &str = "app.priority";

pub(super) struct PriorityStep {
    channel: ChannelId,
    is_server: bool,
    priority: i64,
    rate: f64,
    look: Option<Instant>,
}

impl PriorityStep {
    pub(super) fn new(channel: &ChannelId, is_server: bool) -> PriorityStep {
        PriorityStep { channel: channel.clone(), is_server, priority: 50, rate: WANTED, look: None }
    }
}

impl Controller for PriorityStep {
    fn name(&self) -> &str {
        "priority"
    }

    fn interests(&self) -> Vec<Interest> {
        let own = if self.is_server { GENERATED } else { SHOWN };
        let arrivals = Interest::on(&self.channel, Topic::Reading(AttributeId::of(RATE)));
        vec![arrivals, Interest::anywhere(Topic::Reading(AttributeId::of(own)))]
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, _decisions: &mut Decisions) {
        let ChangeKind::Reading(reading) = change.what else { return };
        // The server's manager sees the rates at the clients; the client's manager its own.
        if (change.host == *view.host) != self.is_server {
            self.rate = reading.value as f64 / 1e3;
        }
        self.look.get_or_insert(view.now + Nanos::from_millis(1_000));
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        self.look = Some(view.now + Nanos::from_millis(1_000));
        let step = priority::step(self.rate, WANTED);
        if step != 0 {
            self.priority = (self.priority + step).clamp(1, 99);
            let (application, attribute) = (member(self.is_server), AttributeId::of(PRIORITY));
            decisions.push(Decision::Apply { application, attribute, amount: self.priority });
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.look
    }
}
