//! A manager together with its node: events that the node receives on Q-channels go to the manager, and decisions
//! of the manager go out through the node.
//!
//! A data channel that an application opens also opens its Q-channel. The member sees this, joins the Q-channel
//! with a source and a sink, and leaves with it. The application is not involved.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use qfabric_channel::{
    Config, Event, EventType, Frame, Key, Node, Notice, Output as NodeOutput, SinkId, SinkSpec, SourceId, SourceSpec,
    Spec, Submission, Taken, Target,
};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::{QualityEvent, Reading, ReadingEvent, quality_format, reading_format};
use qfabric_types::{Instant, Nanos};

use super::contracts::{self, ContractMessage, NotReadable};
use super::far;
use super::{Controller, Effect, Input, Manager, Output, Recipient, asked};

/// Number of the event type `reading` on Q-channels.
const READING: u16 = 0;
/// Number of the event type `quality`.
const QUALITY: u16 = 1;

/// Priority of control events: before all but more urgent events.
const CONTROL_PRIORITY: u8 = 6;

/// The event types of all Q-channels: readings and control events.
pub fn quality_spec() -> Spec {
    let types = [reading_format(), quality_format()].into_iter().map(|format| EventType { format });
    Spec { types: types.collect(), ..Spec::default() }
}

/// One output of a member; see [`Member::poll`].
#[derive(Clone, Debug, PartialEq)]
pub enum MemberOutput {
    /// For the network or for applications.
    Node(NodeOutput),
    /// For this host.
    Effect(Effect),
    /// Another host's message about a contract, or that it cannot be read.
    Contract(Name, Result<ContractMessage, NotReadable>),
    /// Another host's message about its ECalls here or this host's ECalls there: the tail of [`far`].
    Ecall(Name, Vec<u8>),
}

/// The source and sink of this host on one Q-channel.
#[derive(Clone, Debug)]
struct Outlet {
    source: SourceId,
    sink: SinkId,
    /// Hosts with sources on the data channel, with their numbers of sources.
    feeds: BTreeMap<Name, u32>,
    /// The marks of the sink: the attributes whose readings its manager wants.
    marks: BTreeSet<Key>,
}

/// A node and its manager. After every call, take outputs from [`Member::poll`] until there are none.
pub struct Member {
    node: Node,
    manager: Manager,
    outlets: BTreeMap<ChannelId, Outlet>,
    /// The sinks of the outlets.
    own_sinks: BTreeMap<SinkId, ChannelId>,
    /// [`Manager::turnover`] when the marks of the sinks were last updated.
    turnover: u64,
    /// The time for which readings may wait on their way.
    slack: Nanos,
    /// The time of the last call.
    now: Instant,
    taken: Taken,
    /// [`contracts::channel`].
    contract_channel: ChannelId,
    /// Messages about contracts that were not polled yet.
    contracts: VecDeque<(Name, Result<ContractMessage, NotReadable>)>,
    /// [`far::channel`].
    far_channel: ChannelId,
    /// Messages about ECalls that were not polled yet.
    ecalls: VecDeque<(Name, Vec<u8>)>,
    unsent: u64,
    unread: u64,
}

impl Member {
    /// A host that has heard of no other. Q-channels have the formats of managers, whatever `config` contains.
    pub fn new(mut config: Config, now: Instant) -> Member {
        config.quality = quality_spec();
        let manager = Manager::new(config.host.clone());
        let node = Node::new(config, now);
        let (outlets, own_sinks, taken, arrived, ecalls) = Default::default();
        Member {
            node,
            manager,
            outlets,
            own_sinks,
            turnover: 0,
            slack: Nanos::ZERO,
            now,
            taken,
            contract_channel: contracts::channel(),
            contracts: arrived,
            far_channel: far::channel(),
            ecalls,
            unsent: 0,
            unread: 0,
        }
    }

    /// Sets the time for which readings may wait on their way to other hosts, so that they go in one frame with others
    /// ([`Submission::slack`]). Control events do not wait. Zero at first.
    pub fn set_slack(&mut self, slack: Nanos) {
        self.slack = slack;
    }

    /// The node, for reading.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The manager, for reading.
    pub fn managed(&self) -> &Manager {
        &self.manager
    }

    /// The number of control events that could not be submitted, and of events of others that could not be read.
    pub fn lost(&self) -> (u64, u64) {
        (self.unsent, self.unread)
    }

    /// Calls the node.
    pub fn with<R>(&mut self, now: Instant, act: impl FnOnce(&mut Node) -> R) -> R {
        self.now = now;
        act(&mut self.node)
    }

    /// Calls the manager.
    pub fn manager<R>(&mut self, now: Instant, act: impl FnOnce(&mut Manager) -> R) -> R {
        self.now = now;
        let result = act(&mut self.manager);
        self.update_marks();
        result
    }

    /// The next output; `None`: there is none. Messages between the manager and the node are passed on the way.
    pub fn poll(&mut self) -> Option<MemberOutput> {
        loop {
            if let Some((host, message)) = self.contracts.pop_front() {
                return Some(MemberOutput::Contract(host, message));
            }
            if let Some((host, tail)) = self.ecalls.pop_front() {
                return Some(MemberOutput::Ecall(host, tail));
            }
            match self.manager.poll() {
                Some(Output::Tell(channel, to, event)) => self.tell(&channel, &to, &event),
                Some(Output::Parameter(filter, parameter, value)) => {
                    self.unsent += u64::from(self.node.set_parameter(&filter, &parameter, value).is_err());
                }
                Some(Output::Effect(effect)) => return Some(MemberOutput::Effect(effect)),
                None => match self.node.poll()? {
                    NodeOutput::Ready(sink) if self.own_sinks.contains_key(&sink) => self.read_sink(sink),
                    NodeOutput::Notice(notice) => {
                        self.noticed(&notice);
                        return Some(MemberOutput::Node(NodeOutput::Notice(notice)));
                    }
                    output => return Some(MemberOutput::Node(output)),
                },
            }
        }
    }

    /// As [`Node::frame`].
    pub fn frame(&self, frame: Frame) -> &[u8] {
        self.node.frame(frame)
    }

    /// As [`Node::memory`].
    pub fn memory(&self, frame: Frame) -> Option<&Arc<Vec<u8>>> {
        self.node.memory(frame)
    }

    /// Adds a controller and informs it of the present members of groups. Returns its number.
    pub fn add(&mut self, controller: Box<dyn Controller>, now: Instant) -> u64 {
        let known = self.node.directory().hosts().flat_map(|(host, record)| {
            record.registrations.values().map(|registration| (host.clone(), registration.clone()))
        });
        let known: Vec<_> = known.collect();
        self.manager(now, |manager| {
            let number = manager.add(controller);
            manager.introduce(number, known, now);
            number
        })
    }

    /// Removes a controller.
    pub fn remove(&mut self, number: u64, now: Instant) -> Option<Box<dyn Controller>> {
        self.manager(now, |manager| manager.remove(number))
    }

    /// Passes a reading of this host's monitor to this host's controllers, and to those on a channel (`None`: on
    /// all that are open here) that want it.
    pub fn reading(
        &mut self,
        (reading, name): (&Reading, &str),
        channel: Option<&ChannelId>,
        to: &Recipient,
        now: Instant,
    ) {
        self.now = now;
        let payload = ReadingEvent::encode(reading, name);
        let wanted = |at: &ChannelId| channel.is_none_or(|channel| channel == at);
        for outlet in self.outlets.iter().filter(|(at, _)| wanted(at)).map(|(_, outlet)| outlet) {
            let (slack, payload) = (self.slack, &payload);
            let event = Submission { event_type: READING, slack, payload, ..Submission::default() };
            self.unsent += submit(&mut self.node, outlet, event, to, now);
        }
        let host = self.node.host().clone();
        self.manage(Input::Reading(None, host, *reading));
    }

    /// Sends a message about a contract to another host. It is lost, and counted, if this host is not in the group
    /// [`contracts::group`].
    pub fn tell_contract(&mut self, to: &Name, message: &ContractMessage, now: Instant) {
        self.now = now;
        let payload = message.encode(now);
        self.publish(&self.contract_channel.clone(), &Recipient::Host(to.clone()), &payload);
    }

    /// Sends a message about ECalls, of at most [`far::MAX_TAIL`] bytes, to another host. It is lost, and counted, if
    /// this host is not in the group [`far::group`].
    pub fn tell_ecall(&mut self, to: &Name, tail: &[u8], now: Instant) {
        self.now = now;
        let payload = far::encode(tail, now);
        self.publish(&self.far_channel.clone(), &Recipient::Host(to.clone()), &payload);
    }

    /// When [`Member::wake`] must be called; it may change with every call.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.node.next_wakeup().into_iter().chain(self.manager.next_wakeup()).min()
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Instant) {
        self.now = now;
        if self.node.next_wakeup().is_some_and(|at| at <= now) {
            self.node.wake(now);
        }
        if self.manager.next_wakeup().is_some_and(|at| at <= now) {
            self.manage(Input::Wake);
            self.update_marks();
        }
    }

    fn manage(&mut self, input: Input) {
        if matches!(input, Input::Wake | Input::HostGone(_)) {
            let node = &self.node;
            self.manager.measure(|host| node.clock_offset(host).map(|(_, half_a_round_trip)| half_a_round_trip));
        }
        self.manager.handle(input, self.now);
    }

    /// Publishes a control event.
    fn tell(&mut self, channel: &ChannelId, to: &Recipient, event: &QualityEvent) {
        self.publish(channel, to, &event.encode());
    }

    fn publish(&mut self, channel: &ChannelId, to: &Recipient, payload: &[u8]) {
        let Some(outlet) = self.outlets.get(channel) else { return self.unsent += 1 };
        let priority = CONTROL_PRIORITY;
        let event = Submission { event_type: QUALITY, priority, payload, ..Submission::default() };
        self.unsent += submit(&mut self.node, outlet, event, to, self.now);
    }

    /// Reads the events of one of the member's own sinks.
    fn read_sink(&mut self, sink: SinkId) {
        let mut taken = std::mem::take(&mut self.taken);
        // A sink that the access list has ended in the meantime has no events.
        while self.node.take(sink, &mut taken, self.now).unwrap_or(false) {
            match taken.event().and_then(|event| read(&event, &self.contract_channel, &self.far_channel)) {
                Some(Heard::Input(input)) => self.manage(input),
                Some(Heard::Contract(host, message)) => self.contracts.push_back((host, message)),
                Some(Heard::Ecall(host, tail)) => self.ecalls.push_back((host, tail)),
                None => self.unread += 1,
            }
        }
        self.taken = taken;
    }

    fn noticed(&mut self, notice: &Notice) {
        match notice {
            Notice::Opened(channel) if channel.plane == Plane::Quality => self.join(channel.clone()),
            Notice::Closed(channel) => self.leave(channel),
            Notice::SourceJoined(channel, member, _) | Notice::SourceLeft(channel, member)
                if channel.plane == Plane::Data =>
            {
                self.count_sources(channel, member.host.clone());
                if matches!(notice, Notice::SourceJoined(..)) && member.host == *self.node.host() {
                    let quality = ChannelId { plane: Plane::Quality, name: channel.name.clone() };
                    self.manage(Input::SourceJoined(quality));
                }
            }
            Notice::HostVanished(host) => self.manage(Input::HostGone(host.clone())),
            Notice::Registered(host, registration) => self.manage(Input::Joined(host.clone(), registration.clone())),
            // A crashed host takes its registrations with it; that it is gone covers all of them, and none counts
            // as having left.
            Notice::Unregistered(host, registration) if self.node.directory().host(host).is_some() => {
                self.manage(Input::Left(host.clone(), registration.clone()));
            }
            _ => {}
        }
    }

    fn join(&mut self, channel: ChannelId) {
        let now = self.now;
        let marks = asked::marks(&self.manager.wanted(&channel));
        let attributes = marks.iter().map(|key| (key.clone(), 1)).collect();
        let source = self.node.source_subscribe(&channel, SourceSpec::default(), now);
        let sink = self.node.sink_subscribe(&channel, SinkSpec { attributes, ..SinkSpec::default() }, now);
        let (Ok(source), Ok(sink)) = (source, sink) else {
            // The access list allows this host only to receive, or only to send: it takes no part.
            self.unsent += 1;
            return;
        };
        // Fails if the channel was closed in the meantime; then there is nothing to filter.
        let _ = self.node.install_own(asked::filter_id(&channel), None, &["reading".to_owned()], asked::filter());
        let data = ChannelId { plane: Plane::Data, name: channel.name.clone() };
        let holders = self.node.directory().holders(&data);
        let feeds: BTreeMap<Name, u32> = holders
            .map(|(host, held)| (host.clone(), held.sources.len() as u32))
            .filter(|(_, sources)| *sources > 0)
            .collect();
        self.own_sinks.insert(sink, channel.clone());
        self.outlets.insert(channel, Outlet { source, sink, feeds, marks });
    }

    fn leave(&mut self, channel: &ChannelId) {
        if let Some(outlet) = self.outlets.remove(channel) {
            self.own_sinks.remove(&outlet.sink);
        }
    }

    /// Counts the sources of a host on the data channel, because reports of sinks go there. For this host, the
    /// manager's sink gets the attribute `source`, which filters use.
    fn count_sources(&mut self, data: &ChannelId, host: Name) {
        let quality = ChannelId { plane: Plane::Quality, name: data.name.clone() };
        let own = host == *self.node.host();
        let held = self.node.directory().host(&host).and_then(|record| record.channels.get(data));
        let sources = held.map_or(0, |held| held.sources.len() as u32);
        let Some(outlet) = self.outlets.get_mut(&quality) else { return };
        if sources > 0 {
            outlet.feeds.insert(host, sources)
        } else {
            outlet.feeds.remove(&host)
        };
        if own {
            let (sink, key) = (outlet.sink, "source".parse().expect("a key"));
            // Fails if the access list has ended the sink in the meantime; then it needs no attribute.
            let _ = self.node.set_sink_attribute(sink, key, Some(sources.into()), self.now);
        }
    }

    /// Updates the marks of the sinks if controllers were added or removed.
    fn update_marks(&mut self) {
        let turnover = self.manager.turnover();
        if std::mem::replace(&mut self.turnover, turnover) == turnover {
            return;
        }
        let mut changes = Vec::new();
        for (channel, outlet) in &mut self.outlets {
            let marks = asked::marks(&self.manager.wanted(channel));
            let before = std::mem::replace(&mut outlet.marks, marks);
            let changed = before.symmetric_difference(&outlet.marks);
            changes.extend(changed.map(|key| (outlet.sink, key.clone(), outlet.marks.contains(key).then_some(1))));
        }
        for (sink, key, value) in changes {
            // Fails if the access list has ended the sink in the meantime; then it needs no attribute.
            let _ = self.node.set_sink_attribute(sink, key, value, self.now);
        }
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("manager", &self.manager).field("outlets", &self.outlets).finish_non_exhaustive()
    }
}

/// Submits once for each target. Returns the number of failures.
fn submit(node: &mut Node, outlet: &Outlet, event: Submission<'_>, to: &Recipient, now: Instant) -> u64 {
    let mut send = |target| u64::from(node.submit(outlet.source, &Submission { target, ..event }, now).is_err());
    match to {
        Recipient::All => send(Target::All),
        Recipient::Host(host) => send(Target::Host(host)),
        Recipient::Sources => outlet.feeds.keys().map(|host| send(Target::Host(host))).sum(),
    }
}

/// An event of a Q-channel.
enum Heard {
    Input(Input),
    Contract(Name, Result<ContractMessage, NotReadable>),
    Ecall(Name, Vec<u8>),
}

/// Decodes an event of a Q-channel; `None`: it cannot be decoded.
fn read(event: &Event<'_>, contracts: &ChannelId, ecalls: &ChannelId) -> Option<Heard> {
    let (channel, host) = (event.channel.clone(), event.host.clone());
    let input = match event.event_type {
        READING => {
            ReadingEvent::decode(event.payload).ok().map(|read| Input::Reading(Some(channel), host, read.reading))
        }
        QUALITY if channel == *contracts => {
            // A manager's event of the group, such as a policy's, has no tail.
            match ContractMessage::decode(event.payload) {
                Err(NotReadable::Other) => control(channel, host, event.payload),
                message => return Some(Heard::Contract(host, message)),
            }
        }
        QUALITY if channel == *ecalls => match far::decode(event.payload) {
            Some(tail) => return Some(Heard::Ecall(host, tail.to_vec())),
            None => control(channel, host, event.payload),
        },
        QUALITY => control(channel, host, event.payload),
        _ => None,
    };
    input.map(Heard::Input)
}

fn control(channel: ChannelId, host: Name, payload: &[u8]) -> Option<Input> {
    QualityEvent::decode(payload).ok().map(|said| Input::Control(channel, host, said))
}
