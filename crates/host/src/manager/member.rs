//! A manager and the node by which it takes part: what the node hears of quality channels goes to the manager, what the
//! manager decides goes out through the node.
//!
//! A data channel that an application opens brings its Q-channel with it; the member sees that it was opened, joins it
//! with a source and a sink, and leaves with it. The application knows nothing of either.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use qfabric_channel::{
    Config, Delivery, Destination, Event, EventType, Key, Lane, Node, Notice, Port, SinkId, SinkSpec, SourceId,
    SourceSpec, Spec, Submission, Target,
};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::{AttributeId, QualityEvent, Reading, ReadingEvent, quality_format, reading_format};
use qfabric_types::{AppId, Instant, Nanos};

use super::{Controller, Filter, Input, Manager, ManagerPort, Outcome, Whom, asked};

/// Number of the type `reading` on quality channels.
const READING: u16 = 0;
/// Number of the type `quality`.
const QUALITY: u16 = 1;

/// Control events go before everything that is not more urgent still.
const CONTROL_PRIORITY: u8 = 6;

/// What all quality channels carry: readings and control events.
pub fn quality_spec() -> Spec {
    let types = [reading_format(), quality_format()].into_iter().map(|format| EventType { format });
    Spec { types: types.collect(), ..Spec::default() }
}

/// What a member needs of its world.
pub trait MemberPort: Port {
    /// An application of this host gets so much of a resource.
    fn apply(&mut self, application: AppId, attribute: AttributeId, amount: i64);

    /// A request to other hosts ended.
    fn answered(&mut self, request: u64, outcome: &Outcome);

    /// As [`ManagerPort::keep`].
    fn keep(&mut self, _asker: &Name, _request: u64, _amount: i64, _until: Instant) {}

    /// As [`ManagerPort::let_go`].
    fn let_go(&mut self, _asker: &Name, _request: u64) {}

    /// As [`ManagerPort::taken`].
    fn taken(&mut self, _giver: &Name, _request: u64) {}
}

/// How this host takes part in one quality channel.
#[derive(Clone, Debug)]
struct Outlet {
    source: SourceId,
    sink: SinkId,
    /// Hosts with sources on the data channel, and how many each has.
    feeds: BTreeMap<Name, u32>,
    /// What the sink says that its manager wants to hear.
    asks: BTreeSet<Key>,
}

/// What the node said that the manager has to hear.
enum Heard {
    Reading(ChannelId, Name, Reading),
    Control(ChannelId, Name, QualityEvent),
    Notice(Notice),
}

/// A node and its manager.
pub struct Member {
    node: Node,
    manager: Manager,
    outlets: BTreeMap<ChannelId, Outlet>,
    /// The policies that the outlets have spoken for: [`Manager::turnover`].
    spoken_for: u64,
    heard: VecDeque<Heard>,
    unsent: u64,
    unread: u64,
}

impl Member {
    /// A host that knows of no other. Quality channels carry what managers understand, whatever `config` says.
    pub fn new(mut config: Config, now: Instant) -> Member {
        config.quality = quality_spec();
        let manager = Manager::new(config.host.clone());
        let node = Node::new(config, now);
        Member { node, manager, outlets: BTreeMap::new(), spoken_for: 0, heard: VecDeque::new(), unsent: 0, unread: 0 }
    }

    /// The node, to look at.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The manager, to look at.
    pub fn managed(&self) -> &Manager {
        &self.manager
    }

    /// Control events that could not be submitted, and events of others that could not be read.
    pub fn lost(&self) -> (u64, u64) {
        (self.unsent, self.unread)
    }

    /// Calls the node, then lets the manager act on what came of it.
    pub fn with<R>(
        &mut self,
        now: Instant,
        port: &mut dyn MemberPort,
        act: impl FnOnce(&mut Node, &mut dyn Port) -> R,
    ) -> R {
        let mut tee = Tee { port, outlets: &self.outlets, heard: &mut self.heard, unread: &mut self.unread };
        let result = act(&mut self.node, &mut tee);
        self.listen(now, port);
        result
    }

    /// Calls the manager.
    pub fn manager<R>(
        &mut self,
        now: Instant,
        port: &mut dyn MemberPort,
        act: impl FnOnce(&mut Manager, &mut dyn ManagerPort) -> R,
    ) -> R {
        let result = self.managing(now, port, act);
        self.say_what_is_wanted(now, port);
        self.listen(now, port);
        result
    }

    /// Where there are other policies than before.
    fn say_what_is_wanted(&mut self, now: Instant, port: &mut dyn MemberPort) {
        let turnover = self.manager.turnover();
        if std::mem::replace(&mut self.spoken_for, turnover) == turnover {
            return;
        }
        let mut changes = Vec::new();
        for (channel, outlet) in &mut self.outlets {
            let asks = asked::said(&self.manager.wanted(channel));
            let before = std::mem::replace(&mut outlet.asks, asks);
            let changed = before.symmetric_difference(&outlet.asks);
            changes.extend(changed.map(|key| (outlet.sink, key.clone(), outlet.asks.contains(key).then_some(1))));
        }
        let mut tee = Tee { port, outlets: &self.outlets, heard: &mut self.heard, unread: &mut self.unread };
        for (sink, key, value) in changes {
            // A sink that was ended by the access list meanwhile needs no attribute.
            let _ = self.node.set_sink_attribute(sink, key, value, now, &mut tee);
        }
    }

    /// Adds a policy, and tells it who is in which group already; its number.
    pub fn add(&mut self, controller: Box<dyn Controller>, now: Instant, port: &mut dyn MemberPort) -> u64 {
        let known = self.node.directory().hosts().flat_map(|(host, record)| {
            record.registrations.values().map(|registration| (host.clone(), registration.clone()))
        });
        let known: Vec<_> = known.collect();
        self.manager(now, port, |manager, port| {
            let number = manager.add(controller);
            manager.introduce(number, known, now, port);
            number
        })
    }

    /// Removes a policy.
    pub fn remove(&mut self, number: u64, now: Instant, port: &mut dyn MemberPort) -> Option<Box<dyn Controller>> {
        self.manager(now, port, |manager, _| manager.remove(number))
    }

    /// A reading of this host's monitor: for this host's controllers, and for those on a channel (none: on all that are
    /// open here) that want it.
    pub fn reading(
        &mut self,
        (reading, name): (&Reading, &str),
        channel: Option<&ChannelId>,
        to: &Whom,
        now: Instant,
        port: &mut dyn MemberPort,
    ) {
        let payload = ReadingEvent::encode(reading, name);
        let wanted = |at: &ChannelId| channel.is_none_or(|channel| channel == at);
        for outlet in self.outlets.iter().filter(|(at, _)| wanted(at)).map(|(_, outlet)| outlet) {
            let event = Submission { event_type: READING, payload: &payload, ..Submission::default() };
            let mut tee = Tee { port, outlets: &self.outlets, heard: &mut self.heard, unread: &mut self.unread };
            self.unsent += submit(&mut self.node, outlet, event, to, now, &mut tee);
        }
        let host = self.node.host().clone();
        self.managing(now, port, |manager, port| manager.handle(Input::Reading(None, host, *reading), now, port));
        self.listen(now, port);
    }

    /// When [`Member::wake`] is to be called; it may change with every call.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.node.next_wakeup().into_iter().chain(self.manager.next_wakeup()).min()
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Instant, port: &mut dyn MemberPort) {
        if self.node.next_wakeup().is_some_and(|at| at <= now) {
            self.with(now, port, |node, port| node.wake(now, port));
        }
        if self.manager.next_wakeup().is_some_and(|at| at <= now) {
            self.manager(now, port, |manager, port| manager.handle(Input::Wake, now, port));
        }
    }

    fn managing<R>(
        &mut self,
        now: Instant,
        port: &mut dyn MemberPort,
        act: impl FnOnce(&mut Manager, &mut dyn ManagerPort) -> R,
    ) -> R {
        let tee = Tee { port, outlets: &self.outlets, heard: &mut self.heard, unread: &mut self.unread };
        let mut hands = Hands { node: &mut self.node, tee, now, unsent: &mut self.unsent };
        act(&mut self.manager, &mut hands)
    }

    /// Until nothing new was heard: what the manager does may be heard by itself.
    fn listen(&mut self, now: Instant, port: &mut dyn MemberPort) {
        while let Some(heard) = self.heard.pop_front() {
            let input = match heard {
                Heard::Reading(channel, host, reading) => Some(Input::Reading(Some(channel), host, reading)),
                Heard::Control(channel, host, event) => Some(Input::Control(channel, host, event)),
                Heard::Notice(notice) => self.noticed(notice, now, port),
            };
            if let Some(input) = input {
                self.managing(now, port, |manager, port| manager.handle(input, now, port));
            }
        }
    }

    fn noticed(&mut self, notice: Notice, now: Instant, port: &mut dyn MemberPort) -> Option<Input> {
        match notice {
            Notice::Opened(channel) => self.join(channel, now, port),
            Notice::Closed(channel) => drop(self.outlets.remove(&channel)),
            Notice::SourceJoined(channel, member, _) => self.count_sources(&channel, member.host, now, port),
            Notice::SourceLeft(channel, member) => self.count_sources(&channel, member.host, now, port),
            Notice::HostVanished(host) => return Some(Input::HostGone(host)),
            Notice::Registered(host, registration) => return Some(Input::Joined(host, registration)),
            // A host that vanished takes its registrations along: that it is gone is said of all of it, and nobody left.
            Notice::Unregistered(host, registration) if self.node.directory().host(&host).is_some() => {
                return Some(Input::Left(host, registration));
            }
            _ => {}
        }
        None
    }

    fn join(&mut self, channel: ChannelId, now: Instant, port: &mut dyn MemberPort) {
        let mut tee = Tee { port, outlets: &self.outlets, heard: &mut self.heard, unread: &mut self.unread };
        let asks = asked::said(&self.manager.wanted(&channel));
        let attributes = asks.iter().map(|key| (key.clone(), 1)).collect();
        let sink = SinkSpec { delivery: Delivery::Call, attributes, ..SinkSpec::default() };
        let source = self.node.source_subscribe(&channel, SourceSpec::default(), now, &mut tee);
        let sink = self.node.sink_subscribe(&channel, sink, now, &mut tee);
        let (Ok(source), Ok(sink)) = (source, sink) else {
            // The access list lets this host only listen, or only speak: it takes no part.
            self.unsent += 1;
            return;
        };
        // A channel that was closed meanwhile carries nothing that could be left out.
        let _ = self.node.install_own(asked::spot(&channel), None, &["reading".to_owned()], asked::filter());
        let data = ChannelId { plane: Plane::Data, name: channel.name.clone() };
        let holders = self.node.directory().holders(&data);
        let feeds: BTreeMap<Name, u32> = holders
            .map(|(host, held)| (host.clone(), held.sources.len() as u32))
            .filter(|(_, sources)| *sources > 0)
            .collect();
        self.outlets.insert(channel, Outlet { source, sink, feeds, asks });
    }

    /// Reports go to who feeds the data channel; and the manager's sink says whether that is this host, for filters.
    fn count_sources(&mut self, data: &ChannelId, host: Name, now: Instant, port: &mut dyn MemberPort) {
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
            let mut tee = Tee { port, outlets: &self.outlets, heard: &mut self.heard, unread: &mut self.unread };
            // A sink that was ended by the access list meanwhile needs no attribute.
            let _ = self.node.set_sink_attribute(sink, key, Some(sources.into()), now, &mut tee);
        }
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("manager", &self.manager).field("outlets", &self.outlets).finish_non_exhaustive()
    }
}

/// Submits once for each target; how many did not go out.
fn submit(node: &mut Node, outlet: &Outlet, event: Submission<'_>, to: &Whom, now: Instant, tee: &mut Tee<'_>) -> u64 {
    let mut send = |target| u64::from(node.submit(outlet.source, &Submission { target, ..event }, now, tee).is_err());
    match to {
        Whom::All => send(Target::All),
        Whom::Host(host) => send(Target::Host(host)),
        Whom::Sources => outlet.feeds.keys().map(|host| send(Target::Host(host))).sum(),
    }
}

/// The world's port, with what the manager wants to hear taken off.
struct Tee<'a> {
    port: &'a mut dyn MemberPort,
    outlets: &'a BTreeMap<ChannelId, Outlet>,
    heard: &'a mut VecDeque<Heard>,
    unread: &'a mut u64,
}

impl Port for Tee<'_> {
    fn send(&mut self, to: Destination<'_>, lane: Lane, frame: &[u8]) {
        self.port.send(to, lane, frame);
    }

    fn listen(&mut self, channel: &ChannelId) {
        self.port.listen(channel);
    }

    fn ignore(&mut self, channel: &ChannelId) {
        self.port.ignore(channel);
    }

    fn deliver(&mut self, sink: SinkId, event: &Event<'_>) {
        if self.outlets.get(event.channel).is_none_or(|outlet| outlet.sink != sink) {
            return self.port.deliver(sink, event);
        }
        let (channel, host) = (event.channel.clone(), event.host.clone());
        let heard = match event.event_type {
            READING => ReadingEvent::decode(event.payload).ok().map(|read| Heard::Reading(channel, host, read.reading)),
            QUALITY => QualityEvent::decode(event.payload).ok().map(|said| Heard::Control(channel, host, said)),
            _ => None,
        };
        match heard {
            Some(heard) => self.heard.push_back(heard),
            None => *self.unread += 1,
        }
    }

    fn ready(&mut self, sink: SinkId) {
        self.port.ready(sink);
    }

    fn writable(&mut self, source: SourceId) {
        self.port.writable(source);
    }

    fn notice(&mut self, notice: Notice) {
        let heard = match &notice {
            Notice::Opened(channel) | Notice::Closed(channel) => channel.plane == Plane::Quality,
            Notice::SourceJoined(channel, ..) | Notice::SourceLeft(channel, ..) => channel.plane == Plane::Data,
            Notice::HostVanished(_) | Notice::Registered(..) | Notice::Unregistered(..) => true,
            _ => false,
        };
        if heard {
            self.heard.push_back(Heard::Notice(notice.clone()));
        }
        self.port.notice(notice);
    }
}

/// What the manager can do.
struct Hands<'a> {
    node: &'a mut Node,
    tee: Tee<'a>,
    now: Instant,
    unsent: &'a mut u64,
}

impl ManagerPort for Hands<'_> {
    fn tell(&mut self, channel: &ChannelId, to: &Whom, event: &QualityEvent) {
        let Some(outlet) = self.tee.outlets.get(channel) else { return *self.unsent += 1 };
        let payload = event.encode();
        let priority = CONTROL_PRIORITY;
        let event = Submission { event_type: QUALITY, priority, payload: &payload, ..Submission::default() };
        *self.unsent += submit(self.node, outlet, event, to, self.now, &mut self.tee);
    }

    fn parameter(&mut self, filter: &Filter, parameter: &str, value: i64) {
        *self.unsent += u64::from(self.node.set_parameter(filter, parameter, value).is_err());
    }

    fn apply(&mut self, application: AppId, attribute: AttributeId, amount: i64) {
        self.tee.port.apply(application, attribute, amount);
    }

    fn answered(&mut self, request: u64, outcome: &Outcome) {
        self.tee.port.answered(request, outcome);
    }

    fn keep(&mut self, asker: &Name, request: u64, amount: i64, until: Instant) {
        self.tee.port.keep(asker, request, amount, until);
    }

    fn let_go(&mut self, asker: &Name, request: u64) {
        self.tee.port.let_go(asker, request);
    }

    fn taken(&mut self, giver: &Name, request: u64) {
        self.tee.port.taken(giver, request);
    }

    fn distance(&self, host: &Name) -> Option<Nanos> {
        self.node.clock_offset(host).map(|(_, half_a_round_trip)| half_a_round_trip)
    }
}
