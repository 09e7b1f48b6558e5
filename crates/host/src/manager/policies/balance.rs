//! At every server of a channel: what waits too long goes to the least loaded others (load balancing).
//!
//! ```text
//!   server ── REQUEST ──> Balance ── waits for too long ──> FORWARD ──> server submits it; the OUT-filter chooses
//!   other  ── COPY, BEGUN ──> Balance ── a control event to all ──> Balance of the others ── DROP ──> server
//! ```
//! Requests are numbered by who gets them, differently on each server. The load that the filter looks at is an attribute
//! of each server's sink. Of several answers the first counts: whoever asked forgets a request with its first answer, so
//! that the next one finds nothing. Source: thesis §4.5 (Figures 31, 32).

use std::collections::BTreeMap;

use qfabric_control::adapt::balance::Waiting;
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::{AttributeId, QualityKind, Reading};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, Topic, View};
use super::told;

/// A request of this number, which came to this server, waits: the attribute's name.
pub const REQUEST: &str = "app.request";

/// A copy of this number, for another server, waits.
pub const COPY: &str = "app.copy";

/// A request or a copy of this number waits no more: it is being served, or it was given up.
pub const BEGUN: &str = "app.begun";

/// The request of this number is to go to others, and waits no more.
pub const FORWARD: &str = "app.forward";

/// The copy of this number is to be forgotten: another server has begun it.
pub const DROP: &str = "app.drop";

/// The controller.
#[derive(Debug)]
pub struct Balance {
    channel: ChannelId,
    waiting: Waiting,
    /// Whose the requests are that wait.
    owners: BTreeMap<u64, AppId>,
    /// Copies for others that wait, and at which application.
    copies: BTreeMap<u64, AppId>,
    most: usize,
    cancels: bool,
}

impl Balance {
    /// For servers of a data channel, on its Q-channel: what waited `patience` is forwarded. `most` requests and as many
    /// copies are remembered at once; more wait without anybody forwarding them.
    pub fn new(channel: &ChannelId, patience: Nanos, most: usize) -> Self {
        let (channel, waiting) = (channel.clone(), Waiting::new(patience, most));
        Balance { channel, waiting, owners: BTreeMap::new(), copies: BTreeMap::new(), most, cancels: false }
    }

    /// Who begins a copy cancels the others.
    pub fn cancelling(mut self) -> Self {
        self.cancels = true;
        self
    }

    fn reported(&mut self, reading: &Reading, view: &View<'_>, decisions: &mut Decisions) {
        let (number, application) = (reading.value.cast_unsigned(), reading.application);
        let is = |name: &str| reading.attribute == AttributeId::of(name);
        if is(REQUEST) {
            if !self.owners.contains_key(&number) && self.waiting.push(number, view.now) {
                self.owners.insert(number, application);
            }
        } else if is(COPY) {
            if self.copies.len() < self.most {
                self.copies.insert(number, application);
            }
        } else if self.owners.remove(&number).is_some() {
            self.waiting.cancel(number);
        } else if self.copies.remove(&number).is_some() && self.cancels {
            let event = told("balance", QualityKind::Own, BEGUN, reading.value, view.now);
            decisions.push(Decision::Tell { channel: self.channel.clone(), to: Recipient::All, event });
        }
    }

    /// Another server has begun what waits here as well.
    fn begun(&mut self, number: i64, decisions: &mut Decisions) {
        if let Some(application) = self.copies.remove(&number.cast_unsigned()) {
            decisions.push(Decision::Apply { application, attribute: AttributeId::of(DROP), amount: number });
        }
    }
}

impl Controller for Balance {
    fn name(&self) -> &str {
        "balance"
    }

    fn interests(&self) -> Vec<Interest> {
        let readings = [REQUEST, COPY, BEGUN].map(|name| Interest::anywhere(Topic::Reading(AttributeId::of(name))));
        readings.into_iter().chain([Interest::on(&self.channel, Topic::Control)]).collect()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        let here = change.host == *view.host;
        match &change.what {
            // What a server says to others comes back on channels that this host feeds: once is enough.
            ChangeKind::Reading(reading) if here && change.channel.is_none() => self.reported(reading, view, decisions),
            ChangeKind::Control(event) if !here && event.attribute == AttributeId::of(BEGUN) => {
                self.begun(event.value, decisions);
            }
            _ => {}
        }
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        while let Some(number) = self.waiting.overdue(view.now) {
            let Some(application) = self.owners.remove(&number) else { continue };
            let (attribute, amount) = (AttributeId::of(FORWARD), number.cast_signed());
            decisions.push(Decision::Apply { application, attribute, amount });
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.waiting.next_wakeup()
    }
}
