//! The manager itself: calls controllers, admits, divides, asks and answers other hosts.

mod brokered;
mod output;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use qfabric_channel::Registration;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityEvent, QualityKind, Reading};
use qfabric_types::{AppId, Instant, Nanos};

use output::Outputs;
pub use output::{Effect, Output};

use super::requests::{Held, Holds, MOST_HELD, Requests, Stage, Told, reply, said};
use super::shares::{Granted, Shares};
use super::{
    Ask, Change, ChangeKind, Controller, Decision, Decisions, Interest, Outcome, Overcommitted, Readings, Recipient,
    Topic, View, Wish,
};

/// Readings that are remembered: of 200 hosts 80 each. One more is passed on to controllers and counted, not kept.
const MOST_READINGS: usize = 16_384;

/// Changes that controllers may cause in one another by one input: a host that vanishes causes as many as there are
/// applications. A policy that answers its own answers ends here.
const MOST_CHANGES: usize = 4_096;

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A monitoring event; on no channel: of this host's own monitor.
    Reading(Option<ChannelId>, Name, Reading),
    /// A control event of another host.
    Control(ChannelId, Name, QualityEvent),
    /// A host is gone.
    HostGone(Name),
    /// An application joined a group.
    Joined(Name, Registration),
    /// It left.
    Left(Name, Registration),
    /// Time passed.
    Wake,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inputs.
    pub inputs: u64,
    /// Calls of controllers.
    pub calls: u64,
    /// Decisions carried out.
    pub decisions: u64,
    /// Readings that were not kept: too many.
    pub not_kept: u64,
    /// Changes that were dropped because controllers kept answering each other.
    pub runaway: u64,
    /// Holds for other hosts that ended by themselves.
    pub holds_expired: u64,
}

/// A host's resource manager. After every call, ask [`Manager::poll`] for what it wants done until there is nothing more.
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
    /// Resources whose books are a broker's, and where others may ask for them.
    brokered: BTreeMap<AttributeId, ChannelId>,
    queue: VecDeque<Change>,
    out: Outputs,
    decisions: Decisions,
    counts: Counts,
}

impl Manager {
    /// Without controllers and without resources.
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

    /// Adds a policy; its number, for [`Manager::remove`].
    pub fn add(&mut self, controller: Box<dyn Controller>) -> u64 {
        self.added += 1;
        for interest in controller.interests() {
            self.interests.entry(interest).or_default().push(self.added);
        }
        self.controllers.insert(self.added, controller);
        self.added
    }

    /// Tells a policy that came late who is in which group already.
    pub fn introduce(&mut self, number: u64, members: impl IntoIterator<Item = (Name, Registration)>, now: Instant) {
        for (host, member) in members {
            let change = Change { channel: None, host, what: ChangeKind::Joined(member) };
            if self.interested(&change).any(|interested| interested == number) {
                self.call(number, Some(&change), now);
            }
        }
        self.run(now);
    }

    /// Removes a policy. What it decided stays as it is, until somebody else decides.
    pub fn remove(&mut self, number: u64) -> Option<Box<dyn Controller>> {
        self.removed += 1;
        self.interests.retain(|_, interested| {
            interested.retain(|other| *other != number);
            !interested.is_empty()
        });
        self.controllers.remove(&number)
    }

    /// How often policies came or went.
    pub fn turnover(&self) -> u64 {
        self.added + self.removed
    }

    /// The attributes of which some policy wants to hear readings that come on the channel.
    pub fn wanted(&self, channel: &ChannelId) -> BTreeSet<AttributeId> {
        let heard = self.interests.keys().filter(|interest| interest.channel.as_ref().is_none_or(|of| of == channel));
        let attribute = |interest: &Interest| match interest.topic {
            Topic::Reading(attribute) => Some(attribute),
            _ => None,
        };
        heard.filter_map(attribute).collect()
    }

    /// There is so much of a resource on this host.
    pub fn capacity(&mut self, attribute: AttributeId, amount: i64, now: Instant) {
        let granted = self.shares.capacity(attribute, amount);
        self.granted(granted, now);
    }

    /// What nobody has been promised.
    pub fn free(&self, attribute: AttributeId) -> i64 {
        self.shares.free(attribute)
    }

    /// What other hosts were promised, or are being offered.
    pub fn lent(&self, attribute: AttributeId) -> i64 {
        self.shares.lent(attribute)
    }

    /// What was promised for a request of another host is now to be used here: it is no longer kept, but free for who
    /// comes next. None: nothing was, or not any more.
    pub fn redeem(&mut self, asker: &Name, request: u64, now: Instant) -> Option<i64> {
        let amount = self.holds.held.get(&(asker.clone(), request))?.amount;
        self.release(|(of, number), _| of == asker && *number == request, now);
        Some(amount)
    }

    /// What another host has promised for a request of this one is not wanted after all.
    pub fn give_back(
        &mut self,
        (channel, giver): (&ChannelId, &Name),
        attribute: AttributeId,
        request: u64,
        now: Instant,
    ) {
        let event = said(QualityKind::Cancel, request, attribute, 0, now);
        self.out.tell(channel, Recipient::Host(giver.clone()), event);
    }

    /// An application comes, or wants something else: admitted, and the others adjusted, or refused.
    pub fn came(&mut self, wish: &Wish, now: Instant) -> Result<(), Overcommitted> {
        let granted = self.shares.admit(wish)?;
        self.granted(granted, now);
        Ok(())
    }

    /// An application went: what it had goes to the others.
    pub fn went(&mut self, application: AppId, now: Instant) {
        let granted = self.shares.leave(application);
        self.granted(granted, now);
    }

    /// Asks other hosts for what cannot be had here; [`Effect::Answered`] says what became of it.
    pub fn ask(&mut self, ask: Ask, now: Instant) {
        self.forward(ask, now);
        self.run(now);
    }

    /// Carries out what a policy has decided since it was last called, where its controller only passes on what it hears
    /// and computes elsewhere. A policy that has been removed decides nothing any more.
    pub fn decided(&mut self, number: u64, decisions: Decisions, now: Instant) {
        if !self.controllers.contains_key(&number) {
            return;
        }
        self.counts.decisions += decisions.len() as u64;
        decisions.into_iter().for_each(|decision| self.carry_out(decision, now));
        self.run(now);
    }

    /// The next thing that the calls before want done; none: nothing more.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.poll()
    }

    /// How far hosts are, by half a round trip where it is known: to be said before each [`Input::Wake`] and
    /// [`Input::HostGone`], which may choose the nearest of those that have offered.
    pub fn measure(&mut self, distance: impl Fn(&Name) -> Option<Nanos>) {
        self.requests.measure(distance);
    }

    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// When [`Input::Wake`] is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let own = self.requests.next_wakeup().into_iter().chain(self.holds.next_wakeup());
        own.chain(self.controllers.values().filter_map(|controller| controller.next_wakeup())).min()
    }

    /// Something happened.
    pub fn handle(&mut self, input: Input, now: Instant) {
        self.counts.inputs += 1;
        match input {
            Input::Reading(channel, host, reading) => self.read(channel, host, reading),
            Input::Control(channel, host, event) => self.control(channel, host, event, now),
            Input::HostGone(host) => self.host_gone(host, now),
            Input::Joined(host, member) => {
                self.queue.push_back(Change { channel: None, host, what: ChangeKind::Joined(member) })
            }
            Input::Left(host, member) => {
                self.queue.push_back(Change { channel: None, host, what: ChangeKind::Left(member) })
            }
            Input::Wake => self.wake(now),
        }
        self.run(now);
    }

    fn read(&mut self, channel: Option<ChannelId>, host: Name, reading: Reading) {
        let change = Change { channel, host, what: ChangeKind::Reading(reading) };
        if self.interested(&change).next().is_none() {
            return;
        }
        self.counts.not_kept += u64::from(!self.readings.keep(&change.host, reading));
        self.queue.push_back(change);
    }

    fn control(&mut self, channel: ChannelId, host: Name, event: QualityEvent, now: Instant) {
        let mut told = Vec::new();
        match event.kind {
            QualityKind::Request => self.requested(&channel, &host, &event, now, &mut told),
            QualityKind::Accept => self.accepted(&channel, &host, &event, now, &mut told),
            QualityKind::Cancel => {
                self.out.effect(Effect::Taken { giver: host.clone(), request: event.request });
                self.release(|(asker, request), _| *asker == host && *request == event.request, now)
            }
            QualityKind::Offer => self.requests.offered(&host, &channel, &event, now, &mut told),
            QualityKind::Confirm => {
                let ended = self.requests.confirmed(&host, &event, now, &mut told);
                self.ended(ended);
            }
            _ => self.queue.push_back(Change { channel: Some(channel), host, what: ChangeKind::Control(event) }),
        }
        self.tell(told);
    }

    /// Who can meet a request holds it and offers; who cannot is silent.
    fn requested(
        &mut self,
        channel: &ChannelId,
        host: &Name,
        event: &QualityEvent,
        now: Instant,
        told: &mut Vec<Told>,
    ) {
        let key = (host.clone(), event.request);
        let is_known = self.holds.held.contains_key(&key);
        if *host == self.host || event.value <= 0 || is_known || self.holds.held.len() >= MOST_HELD {
            return;
        }
        if self.brokered.contains_key(&event.attribute) {
            return self.ask_broker(channel, host, event, now);
        }
        let free = self.shares.free(event.attribute);
        let Some(granted) = self.shares.lend(event.attribute, event.value) else { return };
        self.granted(granted, now);
        self.holds.held.insert(key, Held::of(event, Stage::Offered, now));
        told.push((channel.clone(), Some(host.clone()), reply(QualityKind::Offer, event, free, now)));
    }

    /// An offer is taken: it stands until it is cancelled. One that has expired is made again if there is room.
    fn accepted(&mut self, channel: &ChannelId, host: &Name, event: &QualityEvent, now: Instant, told: &mut Vec<Told>) {
        if self.brokered.contains_key(&event.attribute) {
            return self.accepted_of_broker(channel, host, event, now, told);
        }
        let key = (host.clone(), event.request);
        if !self.holds.held.contains_key(&key) {
            self.requested(channel, host, event, now, &mut Vec::new());
        }
        if let Some(held) = self.holds.held.get_mut(&key) {
            (held.until, held.stage) = (Instant::NEVER, Stage::Accepted);
            told.push((channel.clone(), Some(host.clone()), reply(QualityKind::Confirm, event, held.amount, now)));
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
        let mut told = Vec::new();
        self.requests.gone(&host, now, &mut told);
        self.tell(told);
        self.readings.forget(&host);
        self.queue.push_back(Change { channel: None, host, what: ChangeKind::HostGone });
    }

    fn wake(&mut self, now: Instant) {
        let mut told = Vec::new();
        let ended = self.requests.due(now, &mut told);
        self.ended(ended);
        self.tell(told);
        let before = self.holds.held.len();
        self.release(|_, held| held.until <= now, now);
        self.counts.holds_expired += (before - self.holds.held.len()) as u64;
        let is_due = |controller: &dyn Controller| controller.next_wakeup().is_some_and(|at| at <= now);
        let due = self.controllers.iter().filter(|(_, controller)| is_due(&***controller));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.call(number, None, now));
    }

    /// Calls controllers for what changed, and for what they change by that, until nothing changes.
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
            // A manager keeps nobody at an amount: who does has heard it from the policy.
            Decision::Release { .. } => {}
            Decision::Ask(ask) => self.forward(ask, now),
        }
    }

    fn forward(&mut self, ask: Ask, now: Instant) {
        let mut told = Vec::new();
        let request = ask.request;
        let refused = self.requests.ask(ask, now, &mut told).map(|outcome| (request, outcome));
        self.ended(refused);
        self.tell(told);
    }

    fn tell(&mut self, told: Vec<Told>) {
        for (channel, to, event) in told {
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

    /// Allocations changed: applied, and those controllers called that care.
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
