//! Random sequences of operations on several hosts over a network that loses, delays and disorders: afterwards all know
//! the same, no event was delivered twice or out of order, and everything that was sent is accounted for.

use std::collections::BTreeMap;

use proptest::prelude::*;
use qfabric_channel::testing::{Delivered, Memory, Settings, World};
use qfabric_channel::{
    Delivery, EventType, Node, Pressure, SinkId, SinkSpec, SourceId, SourceSpec, Spec, Submission, SubmitError, Taken,
};
use qfabric_ecode::parse_formats;
use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name, Plane};

#[derive(Clone, Debug)]
enum Op {
    Open(usize, usize),
    Close(usize, usize),
    Source(usize, usize),
    Sink(usize, usize, u32),
    LeaveSource(usize),
    LeaveSink(usize),
    Attribute(usize, i64),
    Submit(usize, u8),
    Take(usize),
    Run(u64),
    Cut(usize, usize),
    Heal(usize, usize),
    Kill(usize),
    Start(usize),
}

const HOSTS: usize = 4;
const CHANNELS: usize = 2;

fn members() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..HOSTS, 0..CHANNELS).prop_map(|(host, channel)| Op::Open(host, channel)),
        1 => (0..HOSTS, 0..CHANNELS).prop_map(|(host, channel)| Op::Close(host, channel)),
        3 => (0..HOSTS, 0..CHANNELS).prop_map(|(host, channel)| Op::Source(host, channel)),
        4 => (0..HOSTS, 0..CHANNELS, 0..5_u32).prop_map(|(host, channel, room)| Op::Sink(host, channel, room)),
        1 => any::<usize>().prop_map(Op::LeaveSource),
        1 => any::<usize>().prop_map(Op::LeaveSink),
        1 => (any::<usize>(), -5..5_i64).prop_map(|(sink, value)| Op::Attribute(sink, value)),
    ]
}

fn traffic() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (any::<usize>(), 0..8_u8).prop_map(|(source, priority)| Op::Submit(source, priority)),
        2 => any::<usize>().prop_map(Op::Take),
        3 => (0..400_u64).prop_map(Op::Run),
    ]
}

fn faults() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0..HOSTS, 0..HOSTS).prop_map(|(one, other)| Op::Cut(one, other)),
        2 => (0..HOSTS, 0..HOSTS).prop_map(|(one, other)| Op::Heal(one, other)),
        1 => (0..HOSTS).prop_map(Op::Kill),
        2 => (0..HOSTS).prop_map(Op::Start),
        2 => (500..4_000_u64).prop_map(Op::Run),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    (any::<u64>(), 1..50_u64, 0..200_u32, 0..100_u32, any::<bool>(), 0..500_u64).prop_map(
        |(seed, delay, data_loss, control_loss, disorder, skew)| Settings {
            seed,
            hosts: HOSTS,
            delay: (Nanos::from_micros(50), Nanos::from_millis(delay)),
            data_loss,
            control_loss,
            disorder,
            skew: Nanos::from_millis(skew),
            ..Settings::default()
        },
    )
}

/// A sink with its host, and a source with its.
type Way = (Name, SinkId, Name, SourceId);

struct Run {
    world: Memory,
    hosts: Vec<Name>,
    pressure: Pressure,
    /// With the channel and the host's start they were made in.
    sources: Vec<(Name, SourceId)>,
    sinks: Vec<(Name, SinkId)>,
    got: BTreeMap<Way, Vec<(u64, u8)>>,
    sent: u64,
}

impl Run {
    fn new(settings: Settings, pressure: Pressure) -> Run {
        let world = Memory::new(settings);
        let hosts = world.hosts();
        let (sources, sinks, got) = Default::default();
        Run { world, hosts, pressure, sources, sinks, got, sent: 0 }
    }

    fn spec(&self) -> Spec {
        let formats = parse_formats("struct one { int a; }; struct two { int b; };").expect("it compiles");
        let types = formats.into_iter().map(|format| EventType { format }).collect();
        Spec { types, pressure: self.pressure, ..Spec::default() }
    }

    fn act(&mut self, op: &Op) {
        match op {
            Op::Open(host, channel) => self.open(*host, *channel),
            Op::Close(host, number) => {
                self.with(*host, |node, now, port| node.close(&channel(*number), now, port));
            }
            Op::Source(host, number) => {
                let source = SourceSpec::default();
                let made =
                    self.with(*host, |node, now, port| node.source_subscribe(&channel(*number), source, now, port));
                self.sources.extend(made.and_then(Result::ok).map(|id| (self.hosts[*host].clone(), id)));
            }
            Op::Sink(host, number, room) => self.sink(*host, *number, *room),
            Op::LeaveSource(which) => {
                if let Some((host, id)) = pick(&mut self.sources, *which) {
                    self.on(&host, |node, now, port| drop(node.leave_source(id, now, port)));
                }
            }
            Op::LeaveSink(which) => {
                self.look();
                if let Some((host, id)) = pick(&mut self.sinks, *which) {
                    self.on(&host, |node, now, port| drop(node.leave_sink(id, now, port)));
                }
            }
            Op::Attribute(which, value) => {
                let Some((host, id)) = chosen(&self.sinks, *which) else { return };
                let key = "load".parse().expect("a key");
                self.on(&host, |node, now, port| drop(node.set_sink_attribute(id, key, Some(*value), now, port)));
            }
            Op::Submit(which, priority) => self.submit(*which, *priority),
            Op::Take(which) => self.take(*which),
            Op::Run(ms) => self.world.run_for(Nanos::from_millis(*ms)),
            Op::Cut(one, other) if one != other => self.world.cut(&self.hosts[*one], &self.hosts[*other]),
            Op::Heal(one, other) if one != other => self.world.heal(&self.hosts[*one], &self.hosts[*other]),
            Op::Kill(host) if self.world.is_up(&self.hosts[*host]) => self.kill(*host),
            Op::Start(host) if !self.world.is_up(&self.hosts[*host]) => self.world.start(&self.hosts[*host]),
            Op::Cut(..) | Op::Heal(..) | Op::Kill(_) | Op::Start(_) => {}
        }
    }

    fn open(&mut self, host: usize, number: usize) {
        let spec = self.spec();
        self.with(host, |node, now, port| {
            let id = channel(number);
            node.open(&id, now, port).or_else(|_| node.create(&id, spec, now, port))
        });
    }

    fn sink(&mut self, host: usize, number: usize, room: u32) {
        let delivery = if room == 0 { Delivery::Call } else { Delivery::Queue { capacity: room } };
        let types = if room == 3 { vec!["two".to_owned()] } else { vec![] };
        let sink = SinkSpec { types, delivery, ..SinkSpec::default() };
        let made = self.with(host, |node, now, port| node.sink_subscribe(&channel(number), sink, now, port));
        self.sinks.extend(made.and_then(Result::ok).map(|id| (self.hosts[host].clone(), id)));
    }

    fn submit(&mut self, which: usize, priority: u8) {
        let Some((host, id)) = chosen(&self.sources, which) else { return };
        let event =
            Submission { event_type: u16::from(priority % 2), priority, payload: &[0; 4], ..Submission::default() };
        let sent = self.on(&host, |node, now, port| node.submit(id, &event, now, port));
        match sent {
            Some(Ok(sent)) => self.sent += u64::from(sent.remote + sent.local),
            Some(Err(SubmitError::WouldBlock { .. } | SubmitError::Gone(_))) | None => {}
            Some(Err(other)) => panic!("{other}"),
        }
    }

    fn take(&mut self, which: usize) {
        let Some((host, sink)) = chosen(&self.sinks, which) else { return };
        let mut taken = Taken::default();
        let some = self.on(&host, |node, now, port| node.take(sink, &mut taken, now, port));
        if let (Some(Ok(true)), Some(event)) = (some, taken.event()) {
            let key = (host, sink, event.host.clone(), event.source);
            self.got.entry(key).or_default().push((event.number, event.priority));
        }
    }

    /// What was delivered by calls. In it priorities play no part.
    fn look(&mut self) {
        for host in self.hosts.clone() {
            for Delivered { sink, host: from, source, number, .. } in self.world.delivered(&host) {
                self.got.entry((host.clone(), sink, from, source)).or_default().push((number, 0));
            }
        }
    }

    /// What came before a crash is another start's: numbers begin anew.
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

    fn with<R>(
        &mut self,
        host: usize,
        act: impl FnOnce(&mut Node, qfabric_types::Instant, &mut dyn qfabric_channel::Port) -> R,
    ) -> Option<R> {
        let host = self.hosts[host].clone();
        self.on(&host, act)
    }

    fn on<R>(
        &mut self,
        host: &Name,
        act: impl FnOnce(&mut Node, qfabric_types::Instant, &mut dyn qfabric_channel::Port) -> R,
    ) -> Option<R> {
        self.world.is_up(host).then(|| self.world.with(host, act))
    }

    fn assert_sound(&self) {
        let up = self.hosts.iter().filter(|host| self.world.is_up(host));
        up.for_each(|host| self.world.node(host).assert_sound());
    }

    /// Everything heals, everybody is there, and much time passes.
    fn end(&mut self) {
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

    /// Gives what the sinks say was sent to them.
    fn books_balance(&self) -> u64 {
        let mut sent = 0;
        for (host, sink) in &self.sinks {
            let Ok(counts) = self.world.node(host).sink_counts(*sink) else { continue };
            let sum = counts.delivered + counts.filtered + counts.dropped + counts.late + counts.lost + counts.queued;
            assert_eq!(counts.sent, sum, "{counts:?}");
            sent += counts.sent;
        }
        sent
    }
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

/// Within one priority numbers rise: none twice, none after a later one.
fn assert_in_order(events: &[(u64, u8)]) {
    for priority in 0..8 {
        let numbers: Vec<u64> = events.iter().filter(|event| event.1 == priority).map(|event| event.0).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }
}

fn pressure() -> impl Strategy<Value = Pressure> {
    let patience = Nanos::from_millis(200);
    prop_oneof![Just(Pressure::DropOldest), Just(Pressure::DropNewest), Just(Pressure::Block { patience }),]
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn after_any_faults_all_know_the_same_and_the_books_balance(
        settings in settings(),
        pressure in pressure(),
        ops in prop::collection::vec(prop_oneof![4 => members(), 5 => traffic(), 1 => faults()], 1..120),
    ) {
        let mut run = Run::new(settings, pressure);
        for op in &ops {
            run.act(op);
            run.assert_sound();
        }
        run.end();
    }

    #[test]
    fn without_churn_every_single_event_is_accounted_for(
        settings in settings(),
        pressure in pressure(),
        start in prop::collection::vec(
            prop_oneof![
                (0..HOSTS, 0..CHANNELS).prop_map(|(host, channel)| Op::Source(host, channel)),
                (0..HOSTS, 0..CHANNELS, 0..5_u32).prop_map(|(host, channel, room)| Op::Sink(host, channel, room)),
            ],
            2..16,
        ),
        ops in prop::collection::vec(traffic(), 1..200),
    ) {
        let mut run = Run::new(settings, pressure);
        for number in 0..CHANNELS {
            run.open(0, number);
        }
        run.world.run_for(Nanos::from_millis(60_000));
        for (host, number) in (1..HOSTS).flat_map(|host| (0..CHANNELS).map(move |number| (host, number))) {
            run.open(host, number);
        }
        start.iter().for_each(|op| run.act(op));
        run.world.run_for(Nanos::from_millis(60_000));
        ops.iter().for_each(|op| run.act(op));
        run.end();
        prop_assert_eq!(run.books_balance(), run.sent, "what sources sent is what sinks know of");
        for (host, source) in &run.sources {
            let counts = run.world.node(host).source_counts(*source).expect("the source is there");
            prop_assert!(counts.delivered + counts.refused + counts.lost <= counts.sent, "{:?}", counts);
        }
    }
}
