//! Load balancing between the servers of a channel: a request that waits too long goes to the least loaded other
//! servers.
//!
//! ```text
//!   server ── REQUEST ──> Balance ── waits too long ──> FORWARD ──> server submits it; the OUT-filter chooses
//!   other  ── COPY, BEGUN ──> Balance ── a control event to all ──> Balance of the others ── DROP ──> server
//! ```
//! Each server numbers its requests itself. The load that the filter compares is an attribute of each server's
//! sink. If there are several answers, the first one counts: the client forgets a request with its first answer, so
//! later ones are ignored. Source: thesis §4.5 (Figures 31, 32).

use std::collections::BTreeMap;

use qfabric_control::adapt::balance::Waiting;
use qfabric_types::channel::ChannelId;
use qfabric_types::monitor::{AttributeId, QualityKind, Reading};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, Topic, View};
use super::facts::Group;
use super::told;

/// Name of the attribute by which a server reports that the request with this number, which came to it, waits.
pub const REQUEST: &str = "app.request";

/// Name of the attribute by which a server reports that a copy with this number, from another server, waits.
pub const COPY: &str = "app.copy";

/// Name of the attribute by which a server reports that a request or copy with this number no longer waits: it is
/// being served or was given up.
pub const BEGUN: &str = "app.begun";

/// Name of the attribute that tells a server to forward the request with this number; the request no longer waits.
pub const FORWARD: &str = "app.forward";

/// Name of the attribute that tells a server to drop the copy with this number, because another server has begun it.
pub const DROP: &str = "app.drop";

#[derive(Debug)]
pub struct Balance {
    channel: ChannelId,
    /// The servers.
    group: Group,
    waiting: Waiting,
    /// The application of each waiting request.
    owners: BTreeMap<u64, AppId>,
    /// Waiting copies from other servers, with their application.
    copies: BTreeMap<u64, AppId>,
    most: usize,
    cancels: bool,
}

impl Balance {
    /// For servers of a data channel, on its Q-channel: a request that waited `patience` is forwarded. At most
    /// `most` requests and `most` copies are remembered; further ones are never forwarded.
    pub fn new(channel: &ChannelId, patience: Nanos, most: usize) -> Self {
        let (group, waiting) = (Group::new(channel), Waiting::new(patience, most));
        let (channel, owners, copies) = (channel.clone(), BTreeMap::new(), BTreeMap::new());
        Balance { channel, group, waiting, owners, copies, most, cancels: false }
    }

    /// A server that begins a copy cancels the other copies.
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

    /// Another server has begun the request of a copy that waits here.
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
        let more = [Interest::on(&self.channel, Topic::Control), Interest::anywhere(Topic::Members)];
        readings.into_iter().chain(more).collect()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        let here = change.host == *view.host;
        let changed = self.group.on_change(change, view.host);
        match &change.what {
            // A server's reports to others come back on channels that this host feeds; only the first one counts.
            ChangeKind::Reading(reading) if here && change.channel.is_none() => self.reported(reading, view, decisions),
            ChangeKind::Control(event) if !here && event.attribute == AttributeId::of(BEGUN) => {
                self.begun(event.value, decisions);
            }
            // Its last registration has ended: its copies wait no longer, and nothing else would remove them.
            ChangeKind::Left(_) => self.copies.retain(|_, application| Some(*application) != changed),
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

#[cfg(test)]
mod tests {
    use qfabric_channel::Registration;
    use qfabric_types::channel::Name;
    use qfabric_types::monitor::{Cause, Unit};

    use super::super::super::{Effect, Input, Manager, Output};
    use super::super::member_of;
    use super::*;

    #[test]
    fn copies_of_a_server_that_has_left_take_no_place() {
        let (channel, here): (ChannelId, Name) = ("quality:web".parse().unwrap(), "a".parse().unwrap());
        let (application, group): (Name, Name) = ("server".parse().unwrap(), "web".parse().unwrap());
        let (server, now) = (member_of(&group, &application), Instant::ZERO);
        let mut manager = Manager::new(here.clone());
        manager.add(Box::new(Balance::new(&channel, Nanos::from_millis(100), 2)));
        let copy = |manager: &mut Manager, value: i64| {
            let (attribute, cause, unit) = (AttributeId::of(COPY), Cause::Poll, Unit::Count);
            let reading = Reading { attribute, application: server, value, at: now, over: Nanos::ZERO, cause, unit };
            manager.handle(Input::Reading(None, here.clone(), reading), now);
        };
        let begun = |manager: &mut Manager, value: i64| {
            let begun = told("balance", QualityKind::Own, BEGUN, value, now);
            manager.handle(Input::Control(channel.clone(), "b".parse().unwrap(), begun), now);
        };
        let one = Registration { application, group, parent: None, level: 2, qos: Vec::new() };
        // The program starts again before its former process ends.
        (0..2).for_each(|_| manager.handle(Input::Joined(here.clone(), one.clone()), now));
        (1..=2).for_each(|number| copy(&mut manager, number));
        manager.handle(Input::Left(here.clone(), one.clone()), now);
        begun(&mut manager, 2);
        copy(&mut manager, 3);
        manager.handle(Input::Left(here.clone(), one), now);
        [4, 5].into_iter().for_each(|number| copy(&mut manager, number));
        begun(&mut manager, 1);
        begun(&mut manager, 5);
        let dropped = |number| Output::Effect(Effect::Apply(server, AttributeId::of(DROP), number));
        assert_eq!(std::iter::from_fn(|| manager.poll()).collect::<Vec<_>>(), [dropped(2), dropped(5)]);
    }
}
