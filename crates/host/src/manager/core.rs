//! The manager: calls controllers, admits applications, divides resources, and asks and answers other hosts.

mod brokered;
mod output;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use qfabric_channel::Registration;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityEvent, QualityKind, Reading};
use qfabric_types::{AppId, Instant, Nanos};

use output::Outputs;
pub use output::{Effect, Output};

use super::requests::{Held, Holds, MAX_HELD, Message, Requests, Stage, quality_event, reply};
use super::shares::{Granted, Shares};
use super::{
    Ask, Change, ChangeKind, Controller, Decision, Decisions, Interest, Outcome, Overcommitted, Readings, Recipient,
    ResourceRequest, Topic, View,
};

/// Largest number of readings that are stored: 80 of each of 200 hosts, and at most 256 of one. A further one is passed
/// to controllers and counted, not stored.
const MOST_READINGS: usize = 16_384;

/// Largest number of changes that controllers may cause in each other by one input: a crashed host causes as many as
/// it had applications. A policy that reacts to its own decisions without end is stopped here.
const MOST_CHANGES: usize = 4_096;

/// An event for the manager.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A reading; without a channel, of this host's own monitor. The time of another host's reading is that of its
    /// clock, which began at another moment: controllers see the time of its arrival instead.
    Reading(Option<ChannelId>, Name, Reading),
    /// A control event of another host.
    Control(ChannelId, Name, QualityEvent),
    /// A host is gone.
    HostGone(Name),
    /// An application joined a group.
    Joined(Name, Registration),
    /// An application left a group.
    Left(Name, Registration),
    /// A source of this host joined the data channel of this Q-channel.
    SourceJoined(ChannelId),
    /// Only time has passed.
    Wake,
}

/// Counters of a manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inputs handled.
    pub inputs: u64,
    /// Calls of controllers.
    pub calls: u64,
    /// Decisions carried out.
    pub decisions: u64,
    /// Readings that were not stored because there were too many.
    pub not_kept: u64,
    /// Changes that were dropped because controllers reacted to each other without end.
    pub runaway: u64,
    /// Holds for other hosts that expired.
    pub holds_expired: u64,
}

/// The resource manager of a host. After every call, take outputs from [`Manager::poll`] until there are none.
pub struct Manager {
    host: Name,
    controllers: BTreeMap<u64, Box<dyn Controller>>,
    added: u64,
    removed: u64,
    interests: BTreeMap<Interest, Vec<u64>>,
    readings: Readings,
    shares: Shares,
    requests: Requests,
    holds: Holds,
    /// Resources that a broker accounts for, with the channel on which other hosts may ask for them.
    brokered: BTreeMap<AttributeId, ChannelId>,
    queue: VecDeque<Change>,
    out: Outputs,
    decisions: Decisions,
    counts: Counts,
}

impl Manager {
    /// A manager without controllers and resources.
    pub fn new(host: Name) -> Manager {
        Manager {
            host,
            controllers: BTreeMap::new(),
            added: 0,
            removed: 0,
            interests: BTreeMap::new(),
            readings: Readings::new(MOST_READINGS),
            shares: Shares::default(),
            requests: Requests::default(),
            holds: Holds::default(),
            brokered: BTreeMap::new(),
            queue: VecDeque::new(),
            out: Outputs::default(),
            decisions: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Adds a controller. Returns its number for [`Manager::remove`].
    pub fn add(&mut self, controller: Box<dyn Controller>) -> u64 {
        self.added += 1;
        for interest in controller.interests() {
            self.interests.entry(interest).or_default().push(self.added);
        }
        self.controllers.insert(self.added, controller);
        self.added
    }

    /// Informs a newly added controller of the present members of groups.
    pub fn introduce(&mut self, number: u64, members: impl IntoIterator<Item = (Name, Registration)>, now: Instant) {
        for (host, member) in members {
            let change = Change { channel: None, host, what: ChangeKind::Joined(member) };
            if self.interested(&change).any(|interested| interested == number) {
                self.call(number, Some(&change), now);
            }
        }
        self.run(now);
    }

    /// Removes a controller. Its decisions stay in force until another one decides.
    pub fn remove(&mut self, number: u64) -> Option<Box<dyn Controller>> {
        self.removed += 1;
        self.interests.retain(|_, interested| {
            interested.retain(|other| *other != number);
            !interested.is_empty()
        });
        self.controllers.remove(&number)
    }

    /// Number of controllers added and removed so far.
    pub fn turnover(&self) -> u64 {
        self.added + self.removed
    }

    /// The attributes whose readings on the channel some controller wants.
    pub fn wanted(&self, channel: &ChannelId) -> BTreeSet<AttributeId> {
        let heard = self.interests.keys().filter(|interest| interest.channel.as_ref().is_none_or(|of| of == channel));
        let attribute = |interest: &Interest| match interest.topic {
            Topic::Reading(attribute) => Some(attribute),
            _ => None,
        };
        heard.filter_map(attribute).collect()
    }

    /// Sets the amount of a resource on this host.
    pub fn capacity(&mut self, attribute: AttributeId, amount: i64, now: Instant) {
        let granted = self.shares.capacity(attribute, amount);
        self.granted(granted, now);
    }

    /// The amount that is not promised.
    pub fn free(&self, attribute: AttributeId) -> i64 {
        self.shares.free(attribute)
    }

    /// The amount that is promised or offered to other hosts.
    pub fn lent(&self, attribute: AttributeId) -> i64 {
        self.shares.lent(attribute)
    }

    /// Ends the hold for a request of another host, because the application uses it here now: the amount is free
    /// for the next application. Returns the amount, or `None` if there is no hold.
    pub fn redeem(&mut self, asker: &Name, request: u64, now: Instant) -> Option<i64> {
        let amount = self.holds.held.get(&(asker.clone(), request))?.amount;
        self.release(|(of, number), _| of == asker && *number == request, now);
        Some(amount)
    }

    /// Returns to another host what it promised for a request of this one.
    pub fn give_back(
        &mut self,
        (channel, giver): (&ChannelId, &Name),
        attribute: AttributeId,
        request: u64,
        now: Instant,
    ) {
        let event = quality_event(QualityKind::Cancel, request, attribute, 0, now);
        self.out.tell(channel, Recipient::Host(giver.clone()), event);
    }

    /// An application comes, or wants another amount: admits it and adjusts the others, or refuses.
    pub fn admit(&mut self, request: &ResourceRequest, now: Instant) -> Result<(), Overcommitted> {
        let granted = self.shares.admit(request)?;
        self.granted(granted, now);
        Ok(())
    }

    /// An application left: the others get its amount.
    pub fn leave(&mut self, application: AppId, now: Instant) {
        let granted = self.shares.leave(application);
        self.granted(granted, now);
    }

    /// Asks other hosts for a resource; [`Effect::Answered`] reports the outcome.
    pub fn ask(&mut self, ask: Ask, now: Instant) {
        self.forward(ask, now);
        self.run(now);
    }

    /// Carries out decisions of a policy that computes elsewhere and whose controller only passes on changes.
    /// Decisions of a removed policy are ignored.
    pub fn decided(&mut self, number: u64, decisions: Decisions, now: Instant) {
        if !self.controllers.contains_key(&number) {
            return;
        }
        self.counts.decisions += decisions.len() as u64;
        decisions.into_iter().for_each(|decision| self.carry_out(decision, now));
        self.run(now);
    }

    /// The next output; `None`: there is none.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.poll()
    }

    /// Sets the distances of hosts: half a round trip if it is known. Must be called before each [`Input::Wake`] and
    /// [`Input::HostGone`], which may choose the nearest host that offered.
    pub fn measure(&mut self, distance: impl Fn(&Name) -> Option<Nanos>) {
        self.requests.measure(distance);
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// When [`Input::Wake`] is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let own = self.requests.next_wakeup().into_iter().chain(self.holds.next_wakeup());
        own.chain(self.controllers.values().filter_map(|controller| controller.next_wakeup())).min()
    }

    /// Handles an event.
    pub fn handle(&mut self, input: Input, now: Instant) {
        self.counts.inputs += 1;
        match input {
            Input::Reading(channel, host, reading) => self.read(channel, host, reading, now),
            Input::Control(channel, host, event) => self.control(channel, host, event, now),
            Input::HostGone(host) => self.host_gone(host, now),
            Input::Joined(host, member) => {
                self.queue.push_back(Change { channel: None, host, what: ChangeKind::Joined(member) })
            }
            Input::Left(host, member) => {
                self.queue.push_back(Change { channel: None, host, what: ChangeKind::Left(member) })
            }
            Input::SourceJoined(channel) => {
                let (channel, host) = (Some(channel), self.host.clone());
                self.queue.push_back(Change { channel, host, what: ChangeKind::SourceJoined });
            }
            Input::Wake => self.wake(now),
        }
        self.run(now);
    }

    fn read(&mut self, channel: Option<ChannelId>, host: Name, mut reading: Reading, now: Instant) {
        if host != self.host {
            reading.at = now;
        }
        let change = Change { channel, host, what: ChangeKind::Reading(reading) };
        if self.interested(&change).next().is_none() {
            return;
        }
        self.counts.not_kept += u64::from(!self.readings.keep(&change.host, reading));
        self.queue.push_back(change);
    }

    fn control(&mut self, channel: ChannelId, host: Name, event: QualityEvent, now: Instant) {
        let mut messages = Vec::new();
        match event.kind {
            QualityKind::Request => self.requested(&channel, &host, &event, now, &mut messages),
            QualityKind::Accept => self.accepted(&channel, &host, &event, now, &mut messages),
            QualityKind::Cancel => {
                self.out.effect(Effect::Taken { giver: host.clone(), request: event.request });
                self.release(|(asker, request), _| *asker == host && *request == event.request, now)
            }
            QualityKind::Offer => self.requests.offered(&host, &channel, &event, now, &mut messages),
            QualityKind::Confirm => {
                let ended = self.requests.confirmed(&host, &event, now, &mut messages);
                self.ended(ended);
            }
            _ => self.queue.push_back(Change { channel: Some(channel), host, what: ChangeKind::Control(event) }),
        }
        self.tell(messages);
    }

    /// A host that can meet a request holds the amount and offers it; another one does not answer.
    fn requested(
        &mut self,
        channel: &ChannelId,
        host: &Name,
        event: &QualityEvent,
        now: Instant,
        messages: &mut Vec<Message>,
    ) {
        let key = (host.clone(), event.request);
        let is_known = self.holds.held.contains_key(&key);
        if *host == self.host || event.value <= 0 || is_known || self.holds.held.len() >= MAX_HELD {
            return;
        }
        if self.brokered.contains_key(&event.attribute) {
            return self.ask_broker(channel, host, event, now);
        }
        let free = self.shares.free(event.attribute);
        let Some(granted) = self.shares.lend(event.attribute, event.value) else { return };
        self.granted(granted, now);
        self.holds.held.insert(key, Held::of(event, Stage::Offered, now));
        messages.push((channel.clone(), Some(host.clone()), reply(QualityKind::Offer, event, free, now)));
    }

    /// An accepted offer stands until it is cancelled. An expired one is made again if there is room.
    fn accepted(
        &mut self,
        channel: &ChannelId,
        host: &Name,
        event: &QualityEvent,
        now: Instant,
        messages: &mut Vec<Message>,
    ) {
        if self.brokered.contains_key(&event.attribute) {
            return self.accepted_of_broker(channel, host, event, now, messages);
        }
        let key = (host.clone(), event.request);
        if !self.holds.held.contains_key(&key) {
            self.requested(channel, host, event, now, &mut Vec::new());
        }
        if let Some(held) = self.holds.held.get_mut(&key) {
            (held.until, held.stage) = (Instant::NEVER, Stage::Accepted);
            messages.push((channel.clone(), Some(host.clone()), reply(QualityKind::Confirm, event, held.amount, now)));
        }
    }

    fn release(&mut self, fits: impl Fn(&(Name, u64), &Held) -> bool, now: Instant) {
        for ((asker, request), held) in self.holds.take(fits) {
            if self.brokered.contains_key(&held.attribute) {
                self.out.effect(Effect::LetGo { asker, request });
                continue;
            }
            let granted = self.shares.take_back(held.attribute, held.amount);
            self.granted(granted, now);
        }
    }

    fn host_gone(&mut self, host: Name, now: Instant) {
        self.release(|(asker, _), _| *asker == host, now);
        let mut messages = Vec::new();
        self.requests.gone(&host, now, &mut messages);
        self.tell(messages);
        self.readings.forget(&host);
        self.queue.push_back(Change { channel: None, host, what: ChangeKind::HostGone });
    }

    fn wake(&mut self, now: Instant) {
        let mut messages = Vec::new();
        let ended = self.requests.due(now, &mut messages);
        self.ended(ended);
        self.tell(messages);
        let before = self.holds.held.len();
        self.release(|_, held| held.until <= now, now);
        self.counts.holds_expired += (before - self.holds.held.len()) as u64;
        let is_due = |controller: &dyn Controller| controller.next_wakeup().is_some_and(|at| at <= now);
        let due = self.controllers.iter().filter(|(_, controller)| is_due(&***controller));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.call(number, None, now));
    }

    /// Calls controllers for changes, and for the changes that these cause, until there are none.
    fn run(&mut self, now: Instant) {
        for _ in 0..MOST_CHANGES {
            let Some(change) = self.queue.pop_front() else { return };
            let called: Vec<u64> = self.interested(&change).collect();
            called.into_iter().for_each(|number| self.call(number, Some(&change), now));
        }
        self.counts.runaway += self.queue.len() as u64;
        self.queue.clear();
    }

    fn interested(&self, change: &Change) -> impl Iterator<Item = u64> + '_ {
        let topic = change.what.topic();
        let anywhere = self.interests.get(&Interest { channel: None, topic });
        let here = change.channel.as_ref().and_then(|channel| self.interests.get(&Interest::on(channel, topic)));
        anywhere.into_iter().chain(here).flatten().copied()
    }

    fn call(&mut self, number: u64, change: Option<&Change>, now: Instant) {
        let Some(controller) = self.controllers.get_mut(&number) else { return };
        self.counts.calls += 1;
        let mut decisions = std::mem::take(&mut self.decisions);
        let view = View { host: &self.host, now, readings: &self.readings };
        match change {
            Some(change) => controller.changed(change, &view, &mut decisions),
            None => controller.woken(&view, &mut decisions),
        }
        self.counts.decisions += decisions.len() as u64;
        for decision in decisions.drain(..) {
            self.carry_out(decision, now);
        }
        self.decisions = decisions;
    }

    fn carry_out(&mut self, decision: Decision, now: Instant) {
        match decision {
            Decision::Tell { channel, to, event } => self.out.tell(&channel, to, event),
            Decision::Parameter { filter, parameter, value } => self.out.parameter(filter, parameter, value),
            Decision::Apply { application, attribute, amount } => {
                self.out.effect(Effect::Apply(application, attribute, amount))
            }
            // The manager keeps no application at an amount; the mechanism that does receives the decision from the
            // policy.
            Decision::Release { .. } => {}
            Decision::Ask(ask) => self.forward(ask, now),
        }
    }

    fn forward(&mut self, ask: Ask, now: Instant) {
        let mut messages = Vec::new();
        let request = ask.request;
        let refused = self.requests.ask(ask, now, &mut messages).map(|outcome| (request, outcome));
        self.ended(refused);
        self.tell(messages);
    }

    fn tell(&mut self, messages: Vec<Message>) {
        for (channel, to, event) in messages {
            self.out.tell(&channel, to.map_or(Recipient::All, Recipient::Host), event);
        }
    }

    fn ended(&mut self, ended: impl IntoIterator<Item = (u64, Outcome)>) {
        for (request, outcome) in ended {
            self.out.effect(Effect::Answered(request, outcome.clone()));
            let what = ChangeKind::Answer { request, outcome };
            self.queue.push_back(Change { channel: None, host: self.host.clone(), what });
        }
    }

    /// Applies changed allocations, and calls the controllers that are interested.
    fn granted(&mut self, granted: Vec<Granted>, now: Instant) {
        for (application, attribute, amount) in granted {
            self.out.effect(Effect::Apply(application, attribute, amount));
            let what = ChangeKind::Granted { application, attribute, amount };
            self.queue.push_back(Change { channel: None, host: self.host.clone(), what });
        }
        self.run(now);
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.controllers.values().map(|controller| controller.name()).collect();
        f.debug_struct("Manager")
            .field("host", &self.host)
            .field("controllers", &names)
            .field("counts", &self.counts)
            .finish()
    }
}
