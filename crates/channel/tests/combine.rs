//! Events that wait for others and go to a host in one frame, directly or through a combiner.

use qfabric_channel::testing::{Delivered, EAGER, Memory, Settings, World};
use qfabric_channel::{
    Config, EventType, Lane, Limits, NodeCounts, PROTOCOL, Policy, SinkId, SinkSpec, SourceId, SourceSpec, Spec,
    Submission,
};
use qfabric_ecode::parse_formats;
use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name, Plane};

/// The kinds of frames that the tests write themselves.
const EVENT: u8 = 1;
const MET: u8 = 13;
const BUNDLE: u8 = 14;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn channel(plane: Plane) -> ChannelId {
    ChannelId { plane, name: name("v") }
}

fn spec() -> Spec {
    let types = parse_formats("struct one { int a; };").expect("it compiles");
    Spec { types: types.into_iter().map(|format| EventType { format }).collect(), ..Spec::default() }
}

fn of_quality(config: Config) -> Config {
    Config { quality: spec(), ..config }
}

/// All but `h0`, which receives, have `h1` as their combiner.
fn through_h1(config: Config) -> Config {
    let combiner = (config.host.as_str() != "h0").then(|| name("h1"));
    Config { combiner, ..of_quality(config) }
}

struct Readings {
    world: Memory,
    hosts: Vec<Name>,
    sink: SinkId,
    sources: Vec<(Name, SourceId)>,
}

/// Hosts whose Q-channel has a sink on `h0` and a source on each host from `h2` on.
fn readings(hosts: usize, configure: fn(Config) -> Config) -> Readings {
    let mut world = Memory::configured(Settings { hosts, seed: 7, ..Settings::default() }, configure);
    let hosts = world.hosts();
    world.with(&hosts[0], |node, now| node.create(&channel(Plane::Data), spec(), now)).expect("created");
    world.settle();
    for host in &hosts[1..] {
        world.with(host, |node, now| node.open(&channel(Plane::Data), now)).expect("opened");
    }
    world.settle();
    let quality = channel(Plane::Quality);
    let spec = SinkSpec { capacity: EAGER, ..SinkSpec::default() };
    let sink = world.with(&hosts[0], |node, now| node.sink_subscribe(&quality, spec, now)).expect("a sink");
    world.settle();
    let source = |host: &Name, world: &mut Memory| {
        world.with(host, |node, now| node.source_subscribe(&quality, SourceSpec::default(), now)).expect("a source")
    };
    let sources = hosts[2..].iter().map(|host| (host.clone(), source(host, &mut world))).collect();
    world.settle();
    Readings { world, hosts, sink, sources }
}

impl Readings {
    fn submit(&mut self, which: usize, slack: Nanos) {
        let (host, source) = self.sources[which].clone();
        let event = Submission { payload: &[0; 4], slack, ..Submission::default() };
        self.world.with(&host, |node, now| node.submit(source, &event, now)).expect("submitted");
    }

    /// Each source submits `rounds` times, once in 100 ms, evenly spread.
    fn report(&mut self, rounds: usize, slack: Nanos) {
        let sources = self.sources.len();
        let gap = Nanos::new(100_000_000 / sources as u64);
        for which in (0..rounds).flat_map(|_| 0..sources) {
            self.submit(which, slack);
            self.world.run_for(gap);
        }
    }

    fn counts(&self, host: usize) -> NodeCounts {
        *self.world.node(&self.hosts[host]).counts()
    }

    /// The numbers of the events of each source that have arrived since the last call.
    fn arrived(&mut self) -> Vec<Vec<u64>> {
        let delivered = self.world.delivered(&self.hosts[0]);
        let of = |host: &Name| {
            let of_host = |event: &&Delivered| event.host == *host && event.sink == self.sink;
            delivered.iter().filter(of_host).map(|event| event.number).collect()
        };
        self.sources.iter().map(|(host, _)| of(host)).collect()
    }

    /// The sums of all sources: sent, delivered, and lost events.
    fn outcomes(&mut self) -> (u64, u64, u64) {
        self.world.quiet();
        let counts = self.sources.iter().map(|(host, source)| self.world.node(host).source_counts(*source));
        let counts = counts.map(|counts| counts.expect("the source is there"));
        counts.fold((0, 0, 0), |sum, of| (sum.0 + of.sent, sum.1 + of.delivered, sum.2 + of.lost))
    }

    fn arrive(&mut self, from: usize, frame: &[u8]) {
        let (to, from) = (self.hosts[0].clone(), self.hosts[from].clone());
        self.world.with(&to, |node, now| node.arrive(&from, Lane::Control, frame, now));
    }

    fn incarnation(&self, host: usize) -> u64 {
        self.world.node(&self.hosts[host]).incarnation().0
    }
}

const SLACK: Nanos = Nanos::from_millis(100);

/// The receiver gets few frames, all events, in order and within the slack.
#[test]
fn readings_of_many_hosts_arrive_in_few_frames() {
    let frames = [of_quality, through_h1].map(|configure| {
        let mut run = readings(22, configure);
        run.report(10, SLACK); // after it the clocks are known
        run.world.run_for(SLACK + Nanos::from_millis(3));
        let before = run.counts(0).frames_in;
        run.report(20, SLACK);
        run.world.run_for(SLACK + Nanos::from_millis(3));
        let frames = run.counts(0).frames_in - before;
        assert!(run.arrived().iter().all(|numbers| *numbers == (1..=30).collect::<Vec<_>>()));
        assert_eq!(run.outcomes(), (600, 600, 0));
        frames
    });
    println!("frames at the receiver of 400 events: {frames:?}");
    assert!(frames[0] >= 400 && frames[1] < 60, "{frames:?}");
}

#[test]
fn several_readings_of_one_host_travel_together_without_a_combiner() {
    let mut run = readings(4, of_quality);
    let before = (run.counts(0), run.counts(2));
    (0..50).for_each(|_| run.submit(0, SLACK));
    run.world.run_for(Nanos::from_millis(95));
    assert_eq!(run.arrived()[0], [0; 0], "they wait");
    run.world.run_for(Nanos::from_millis(7));
    assert_eq!(run.arrived()[0], (1..=50).collect::<Vec<_>>());
    assert_eq!(run.counts(0).combined - before.0.combined, 50);
    assert_eq!(run.counts(2).bundles_out - before.1.bundles_out, 1);
}

#[test]
fn an_event_without_slack_takes_the_waiting_ones_along() {
    for configure in [of_quality, through_h1] {
        let mut run = readings(4, configure);
        run.submit(0, SLACK);
        run.submit(0, SLACK);
        run.world.run_for(Nanos::from_millis(60));
        assert_eq!(run.arrived()[0], [0; 0]);
        run.submit(0, Nanos::ZERO);
        run.world.run_for(Nanos::from_millis(4));
        assert_eq!(run.arrived()[0], [1, 2, 3]);
    }
}

#[test]
fn a_full_bundle_leaves_before_its_time() {
    let mut run = readings(4, of_quality);
    let (host, source) = run.sources[0].clone();
    let event = Submission { payload: &[0; 16 << 10], slack: Limits::SLACK, ..Submission::default() };
    for _ in 0..100 {
        run.world.with(&host, |node, now| node.submit(source, &event, now)).expect("submitted");
    }
    run.world.run_for(Nanos::from_millis(10));
    assert!(run.arrived()[0].len() >= 96, "at most 60 KiB wait");
}

#[test]
fn while_the_combiner_is_absent_events_go_directly() {
    let mut run = readings(6, through_h1);
    run.report(5, SLACK);
    let combiner = run.hosts[1].clone();
    run.world.kill(&combiner);
    run.report(30, SLACK);
    let passed = run.arrived();
    assert!(passed.iter().all(|numbers| numbers.is_sorted_by(|a, b| a < b) && numbers.last() >= Some(&34)));
    run.world.start(&combiner);
    run.world.detect();
    let before = run.counts(0).frames_in;
    run.report(10, SLACK);
    let frames = run.counts(0).frames_in - before;
    assert!(frames < 30, "the combiner is used again: {frames} frames for 40 events");
    let (sent, delivered, lost) = run.outcomes();
    assert_eq!((sent, sent), (180, delivered + lost), "each event has one outcome");
    assert!((1..=4 * 17).contains(&lost), "events of 1.5 s and those that waited: {lost}");
}

/// `h2` is a host of an earlier version.
#[test]
fn a_host_that_cannot_read_bundles_gets_and_sends_single_frames() {
    let mut run = readings(5, |config| Config { bundles: config.host.as_str() != "h2", ..through_h1(config) });
    let before = run.counts(0);
    run.report(20, SLACK);
    run.world.run_for(SLACK);
    assert_eq!(run.counts(2).bundles_out, 0);
    assert!(run.counts(0).combined - before.combined >= 40, "of the other two hosts");
    assert_eq!(run.outcomes(), (60, 60, 0));
    let mut old = readings(5, |config| Config { bundles: config.host.as_str() != "h0", ..through_h1(config) });
    old.report(20, SLACK);
    old.world.run_for(SLACK);
    assert_eq!((old.counts(0).combined, old.counts(0).malformed), (0, 0));
    assert_eq!(old.outcomes(), (60, 60, 0));
}

/// The frame of an event of the source `number` of a host.
fn event(incarnation: u64, source: u32, number: u64) -> Vec<u8> {
    let head = [&[PROTOCOL, EVENT][..], &incarnation.to_le_bytes(), &[0, 0, 0, 0]].concat();
    [&head[..], &source.to_le_bytes(), &number.to_le_bytes(), &[0; 12]].concat()
}

/// An item with an origin.
fn item(origin: &str, frame: &[u8]) -> Vec<u8> {
    let length = frame.len() as u16;
    [&[1, origin.len() as u8][..], origin.as_bytes(), &length.to_le_bytes(), frame].concat()
}

fn bundle(incarnation: u64, items: &[u8]) -> Vec<u8> {
    [&[PROTOCOL, BUNDLE][..], &incarnation.to_le_bytes(), items].concat()
}

/// Believes `h1` alone.
struct OnlyH1;

impl Policy for OnlyH1 {
    fn allows(&self, _: &Name, _: qfabric_channel::Action, _: &ChannelId) -> bool {
        true
    }

    fn relays(&self, host: &Name) -> bool {
        host.as_str() == "h1"
    }
}

#[test]
fn only_a_host_that_relays_is_believed_about_others() {
    let mut run = readings(4, |config| Config { policy: Box::new(OnlyH1), ..of_quality(config) });
    let victim = run.sources[1].1.0;
    let forged = item("h3", &event(run.incarnation(3), victim, 1));
    let from = run.incarnation(2);
    run.arrive(2, &bundle(from, &forged));
    assert_eq!((run.counts(0).forbidden, run.counts(0).combined), (1, 0));
    assert_eq!(run.arrived()[1], [0; 0]);
    let from = run.incarnation(1);
    run.arrive(1, &bundle(from, &forged));
    assert_eq!(run.arrived()[1], [1], "a router is believed");
}

/// Believes no host about others.
struct Nobody;

impl Policy for Nobody {
    fn allows(&self, _: &Name, _: qfabric_channel::Action, _: &ChannelId) -> bool {
        true
    }

    fn relays(&self, _: &Name) -> bool {
        false
    }
}

#[test]
fn events_that_wait_for_a_combiner_go_directly_when_it_is_no_longer_believed() {
    let mut run = readings(4, |config| Config { policy: Box::new(OnlyH1), ..through_h1(config) });
    run.submit(0, Limits::SLACK);
    run.submit(0, Limits::SLACK);
    let (host, before) = (run.hosts[2].clone(), run.counts(1).passed_on);
    run.world.with(&host, |node, now| node.set_policy(Box::new(Nobody), now));
    run.world.run_for(Nanos::from_millis(4));
    assert_eq!(run.arrived()[0], [1, 2]);
    assert_eq!(run.counts(1).passed_on, before);
    assert_eq!(run.outcomes(), (2, 2, 0));
}

#[test]
fn a_bundle_carries_events_alone_and_no_nonsense() {
    let mut run = readings(4, of_quality);
    let (from, there) = (run.incarnation(1), run.incarnation(3));
    let good = item("h3", &event(there, run.sources[1].1.0, 1));
    let met = [&[PROTOCOL, MET][..], &there.to_le_bytes(), &[9; 8]].concat();
    let nested = bundle(there, &good);
    let cases = [
        item("h3", &met),
        item("h3", &nested),
        item("h0", &event(run.incarnation(0), 1, 1)),
        item("h3", &[]),
        item("", &[]),
        good[..good.len() - 1].to_vec(),
        vec![4],
        [&[2, 0, 0, 0, 0, 0, 33][..], &[0; 64]].concat(),
        vec![2, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    for (number, case) in cases.iter().enumerate() {
        let before = run.counts(0).malformed;
        run.arrive(1, &bundle(from, case));
        assert_eq!(run.counts(0).malformed, before + 1, "case {number}");
    }
    run.arrive(1, &bundle(from, &item("h9", &event(there, 1, 1))));
    run.arrive(1, &bundle(from, &item("h3", &event(there - 1, 1, 1))));
    assert_eq!(run.counts(0).stranger, 2, "unknown, and an earlier start");
    run.arrive(1, &bundle(from, &good));
    assert_eq!(run.arrived()[1], [1]);
}

/// Two hosts that name each other as combiner: items go back and forth at most four times.
#[test]
fn a_circle_of_combiners_ends() {
    let mut run = readings(4, |config| {
        let combiner = match config.host.as_str() {
            "h2" => Some(name("h3")),
            "h3" => Some(name("h2")),
            _ => None,
        };
        Config { combiner, ..of_quality(config) }
    });
    let passed = |run: &Readings| run.counts(2).passed_on + run.counts(3).passed_on;
    let before = passed(&run);
    run.submit(0, SLACK);
    run.world.run_for(SLACK + Nanos::from_millis(6));
    assert_eq!(run.arrived()[0], [1]);
    assert_eq!(passed(&run) - before, 4);
}
