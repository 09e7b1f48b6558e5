//! Sequences of operations on several hosts over a network that loses, delays and reorders frames, and checks after
//! each of them. At the end all hosts have the same directory, no event was delivered twice or out of order, and every
//! sent event has an outcome. `tests/random.rs` draws sequences at random; the fuzz target `hostile` chooses them.

use std::collections::BTreeMap;

use qfabric_ecode::parse_formats;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::{Instant, Nanos};

use super::{Delivered, EAGER, Memory, Settings, World};
use crate::{
    Direction, EventType, FilterError, FilterId, FilterSpec, Limits, Node, Pressure, SinkCounts, SinkId, SinkSpec,
    SourceId, SourceSpec, Spec, Submission, SubmitError, Taken,
};

/// Number of hosts of a run.
pub const HOSTS: usize = 4;
/// Number of channels of a run.
pub const CHANNELS: usize = 2;

/// One operation. Hosts are below [`HOSTS`], channels below [`CHANNELS`]; numbers of members are taken modulo the
/// number of members.
#[derive(Clone, Debug)]
pub enum Op {
    /// A host opens a channel, or creates it.
    Open(usize, usize),
    Close(usize, usize),
    /// A host adds a source to a channel.
    Source(usize, usize),
    /// A host adds a sink to a channel, with this capacity; 0: a sink that takes each event at once.
    Sink(usize, usize, u32),
    LeaveSource(usize),
    LeaveSink(usize),
    /// A sink's attribute changes.
    Attribute(usize, i64),
    /// A host installs the filter of this number on a channel, or removes its filter; the flag chooses the direction.
    Filter(usize, usize, bool, usize),
    /// A source submits an event of this priority that is of use for this number of milliseconds; 0: without a
    /// deadline.
    Submit(usize, u8, u64),
    /// A source submits an event of this size in KiB.
    Large(usize, usize),
    /// An event is taken from a sink's queue.
    Take(usize),
    /// This number of milliseconds passes.
    Run(u64),
    /// The network between two hosts fails.
    Cut(usize, usize),
    /// The network between two hosts works again.
    Heal(usize, usize),
    /// The first host takes the second for gone, which notices nothing.
    Lose(usize, usize),
    /// The first host detects the second again.
    Find(usize, usize),
    /// A host ends without a message to the others.
    Kill(usize),
    /// The host starts again.
    Start(usize),
}

/// The filters that [`Op::Filter`] installs.
const FILTERS: [&str; 4] = [
    "return 1;",
    "static int n; n++; return n % 3;",
    "return input.a > 3;",
    "struct input { int a; int sinks; struct { long load; } sink[3]; };
     struct output { unsigned char chosen[3]; };
     for (int i = 0; i < 3; i++) output.chosen[i] = input.sink[i].load >= 0;
     return 1;",
];

/// A sink with its host, and a source with its host.
type Way = (Name, SinkId, Name, SourceId);

/// A run of operations.
#[derive(Debug)]
pub struct Run {
    /// The simulated network.
    pub world: Memory,
    pub hosts: Vec<Name>,
    pressure: Pressure,
    plane: Plane,
    /// Submissions so far; they choose the slack of the next one.
    submissions: usize,
    /// The sources that have not left.
    pub sources: Vec<(Name, SourceId)>,
    sinks: Vec<(Name, SinkId)>,
    got: BTreeMap<Way, Vec<(u64, u8)>>,
    /// Number of sinks that events were sent to, summed over all events.
    pub sent: u64,
}

impl Run {
    /// No channel is open.
    pub fn new(settings: Settings, pressure: Pressure) -> Run {
        Run::over(Memory::new(settings), pressure, Plane::Data)
    }

    /// Members are on Q-channels, the events of `h2` and `h3` go through `h1`, and most events have some slack.
    pub fn combined(settings: Settings) -> Run {
        let world = Memory::configured(settings, |mut config| {
            config.quality = spec(Pressure::DropOldest);
            let has_combiner = matches!(config.host.as_str(), "h2" | "h3");
            config.combiner = has_combiner.then(|| "h1".parse().expect("a name"));
            config
        });
        Run::over(world, Pressure::DropOldest, Plane::Quality)
    }

    fn over(world: Memory, pressure: Pressure, plane: Plane) -> Run {
        let hosts = world.hosts();
        let (sources, sinks, got) = Default::default();
        Run { world, hosts, pressure, plane, submissions: 0, sources, sinks, got, sent: 0 }
    }

    /// The channel that members join.
    fn joined(&self, number: usize) -> ChannelId {
        ChannelId { plane: self.plane, ..channel(number) }
    }

    /// Executes one operation.
    pub fn act(&mut self, op: &Op) {
        match op {
            Op::Open(host, channel) => self.open(*host, *channel),
            Op::Close(host, number) => {
                self.with(*host, |node, now| node.close(&channel(*number), now));
            }
            Op::Source(host, number) => {
                let source = SourceSpec::default();
                let id = self.joined(*number);
                let made = self.with(*host, |node, now| node.source_subscribe(&id, source, now));
                self.sources.extend(made.and_then(Result::ok).map(|id| (self.hosts[*host].clone(), id)));
            }
            Op::Sink(host, number, room) => self.sink(*host, *number, *room),
            Op::LeaveSource(which) => {
                if let Some((host, id)) = pick(&mut self.sources, *which) {
                    self.on(&host, |node, now| drop(node.leave_source(id, now)));
                }
            }
            Op::LeaveSink(which) => {
                self.look();
                if let Some((host, id)) = pick(&mut self.sinks, *which) {
                    self.on(&host, |node, now| drop(node.leave_sink(id, now)));
                }
            }
            Op::Attribute(which, value) => {
                let Some((host, id)) = chosen(&self.sinks, *which) else { return };
                let key = "load".parse().expect("a key");
                self.on(&host, |node, now| drop(node.set_sink_attribute(id, key, Some(*value), now)));
            }
            Op::Filter(host, number, out, which) => self.filter(*host, *number, *out, *which),
            Op::Submit(which, priority, within) => self.submit(*which, *priority, *within, 4),
            Op::Large(which, kib) => self.submit(*which, 0, 0, kib << 10),
            Op::Take(which) => self.take(*which),
            Op::Run(ms) => self.world.run_for(Nanos::from_millis(*ms)),
            Op::Cut(one, other) if one != other => self.world.cut(&self.hosts[*one], &self.hosts[*other]),
            Op::Heal(one, other) if one != other => self.world.heal(&self.hosts[*one], &self.hosts[*other]),
            Op::Lose(one, other) => self.report(*one, *other, Node::vanished),
            Op::Find(one, other) => self.report(*one, *other, Node::appeared),
            Op::Kill(host) if self.world.is_up(&self.hosts[*host]) => self.kill(*host),
            Op::Start(host) if !self.world.is_up(&self.hosts[*host]) => self.world.start(&self.hosts[*host]),
            Op::Cut(..) | Op::Heal(..) | Op::Kill(_) | Op::Start(_) => {}
        }
    }

    /// Opens a channel, or creates it.
    pub fn open(&mut self, host: usize, number: usize) {
        let spec = spec(self.pressure);
        self.with(host, |node, now| {
            let id = channel(number);
            node.open(&id, now).or_else(|_| node.create(&id, spec, now))
        });
    }

    fn sink(&mut self, host: usize, number: usize, room: u32) {
        let capacity = if room == 0 { EAGER } else { room };
        let types = if room == 3 { vec!["two".to_owned()] } else { vec![] };
        let sink = SinkSpec { types, capacity, ..SinkSpec::default() };
        let id = self.joined(number);
        let made = self.with(host, |node, now| node.sink_subscribe(&id, sink, now));
        self.sinks.extend(made.and_then(Result::ok).map(|id| (self.hosts[host].clone(), id)));
    }

    /// The network tells the first host about the second.
    fn report(&mut self, one: usize, other: usize, tell: fn(&mut Node, &Name, Instant)) {
        let about = self.hosts[other].clone();
        if one != other && self.world.is_up(&about) {
            self.with(one, |node, now| tell(node, &about, now));
        }
    }

    /// A number beyond the last filter removes the filter.
    fn filter(&mut self, host: usize, number: usize, out: bool, which: usize) {
        let direction = if out { Direction::Out } else { Direction::In };
        let id = FilterId { channel: self.joined(number), direction, name: "f".parse().expect("a name") };
        self.with(host, |node, _| match FILTERS.get(which) {
            Some(text) => {
                let (types, text) = (vec!["one".to_owned()], (*text).to_owned());
                let made = node.install(&FilterSpec { id, sink: None, types, text, parameters: vec![] });
                assert!(matches!(made, Ok(()) | Err(FilterError::Channel(_))), "{made:?}");
            }
            None => drop(node.remove_filter(&id)),
        });
    }

    fn submit(&mut self, which: usize, priority: u8, within: u64, bytes: usize) {
        let Some((host, id)) = chosen(&self.sources, which) else { return };
        let most = if self.plane == Plane::Quality { Limits::WHOLE } else { usize::MAX };
        let mut payload = vec![0; bytes.max(4).min(most)];
        payload[0] = priority;
        self.submissions += 1;
        let slack = Nanos::from_millis([100, 20, 0, 400][self.submissions % 4]);
        let event_type = u16::from(priority % 2);
        let event = Submission { event_type, priority, slack, payload: &payload, ..Submission::default() };
        let sent = self.on(&host, |node, now| {
            let deadline = (within > 0).then(|| now + Nanos::from_millis(within));
            node.submit(id, &Submission { deadline, ..event }, now)
        });
        match sent {
            Some(Ok(sent)) => self.sent += u64::from(sent.remote + sent.local),
            Some(Err(SubmitError::WouldBlock { .. } | SubmitError::Gone(_))) | None => {}
            Some(Err(other)) => panic!("{other}"),
        }
    }

    fn take(&mut self, which: usize) {
        let Some((host, sink)) = chosen(&self.sinks, which) else { return };
        let mut taken = Taken::default();
        let some = self.on(&host, |node, now| node.take(sink, &mut taken, now));
        if let (Some(Ok(true)), Some(event)) = (some, taken.event()) {
            let key = (host, sink, event.host.clone(), event.source);
            self.got.entry(key).or_default().push((event.number, event.priority));
        }
    }

    /// Takes all events from all queues.
    pub fn drain(&mut self) {
        while self.queued() > 0 {
            (0..self.sinks.len()).for_each(|sink| self.take(sink));
        }
    }

    /// Checks the events that sinks took at once. Their order does not depend on priorities, except those of events that
    /// arrived in one frame.
    fn look(&mut self) {
        for host in self.hosts.clone() {
            for Delivered { sink, host: from, source, number, priority, .. } in self.world.delivered(&host) {
                let priority = if self.plane == Plane::Quality { priority } else { 0 };
                self.got.entry((host.clone(), sink, from, source)).or_default().push((number, priority));
            }
        }
    }

    /// Events before a crash belong to another incarnation, whose numbers are independent.
    fn kill(&mut self, host: usize) {
        self.look();
        let name = self.hosts[host].clone();
        self.world.kill(&name);
        self.sources.retain(|(host, _)| *host != name);
        self.sinks.retain(|(host, _)| *host != name);
        let got = std::mem::take(&mut self.got);
        for ((to, sink, from, source), events) in got {
            assert_in_order(&events);
            if to != name && from != name {
                self.got.insert((to, sink, from, source), events);
            }
        }
    }

    fn with<R>(&mut self, host: usize, act: impl FnOnce(&mut Node, Instant) -> R) -> Option<R> {
        let host = self.hosts[host].clone();
        self.on(&host, act)
    }

    fn on<R>(&mut self, host: &Name, act: impl FnOnce(&mut Node, Instant) -> R) -> Option<R> {
        self.world.is_up(host).then(|| self.world.with(host, act))
    }

    /// Checks the conditions that hold after each operation.
    pub fn assert_sound(&self) {
        let up = self.hosts.iter().filter(|host| self.world.is_up(host));
        up.for_each(|host| self.world.node(host).assert_sound());
    }

    /// Repairs the network, starts all hosts, lets much time pass, and checks the final conditions.
    pub fn end(&mut self) {
        for one in 0..HOSTS {
            for other in 0..one {
                self.world.heal(&self.hosts[one], &self.hosts[other]);
            }
            self.act(&Op::Start(one));
        }
        self.world.run_for(Nanos::from_millis(120_000));
        self.look();
        for events in self.got.values() {
            assert_in_order(events);
        }
        self.assert_sound();
        self.directories_agree();
        self.books_balance();
    }

    fn directories_agree(&self) {
        let records = |host: &Name| self.world.node(host).directory().hosts().collect::<Vec<_>>();
        for host in &self.hosts[1..] {
            assert_eq!(records(&self.hosts[0]), records(host), "{} and {host}", self.hosts[0]);
        }
    }

    /// The accounts of all sinks that are still there.
    fn sink_counts(&self) -> impl Iterator<Item = SinkCounts> + '_ {
        self.sinks.iter().filter_map(|(host, sink)| self.world.node(host).sink_counts(*sink).ok())
    }

    /// Number of events that wait in queues.
    pub fn queued(&self) -> u64 {
        self.sink_counts().map(|counts| counts.queued).sum()
    }

    /// Number of events that the sinks know to be lost.
    pub fn lost_at_sinks(&self) -> u64 {
        self.sink_counts().map(|counts| counts.lost).sum()
    }

    /// Checks the accounts; returns the number of events that were sent according to the sinks.
    pub fn books_balance(&self) -> u64 {
        let mut sent = 0;
        for counts in self.sink_counts() {
            let sum = counts.delivered + counts.filtered + counts.dropped + counts.late + counts.lost + counts.queued;
            assert_eq!(counts.sent, sum, "{counts:?}");
            sent += counts.sent;
        }
        sent
    }
}

fn spec(pressure: Pressure) -> Spec {
    let formats = parse_formats("struct one { int a; }; struct two { int b; };").expect("it compiles");
    let types = formats.into_iter().map(|format| EventType { format }).collect();
    Spec { types, pressure, ..Spec::default() }
}

fn channel(number: usize) -> ChannelId {
    ChannelId { plane: Plane::Data, name: format!("c{number}").parse().expect("a name") }
}

fn chosen<T: Clone>(from: &[T], which: usize) -> Option<T> {
    from.get(which.checked_rem(from.len())?).cloned()
}

fn pick<T>(from: &mut Vec<T>, which: usize) -> Option<T> {
    let at = which.checked_rem(from.len())?;
    Some(from.remove(at))
}

/// Within one priority the numbers increase: no event comes twice or after a later one.
fn assert_in_order(events: &[(u64, u8)]) {
    for priority in 0..8 {
        let numbers: Vec<u64> = events.iter().filter(|event| event.1 == priority).map(|event| event.0).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }
}
