//! Sources that leave or join while events are unread: a channel that blocks drops no event that it has accepted.

use qfabric_channel::testing::{Memory, Settings, World};
use qfabric_channel::{
    EventType, Lane, Limits, Node, Output, Pressure, SinkCounts, SinkId, SinkSpec, SourceId, SourceSpec, Spec,
    Submission, Taken,
};
use qfabric_ecode::parse_formats;
use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name};

fn channel() -> ChannelId {
    ChannelId::data("v".parse().expect("a name"))
}

/// Three hosts with a channel that blocks; the first one has a sink. Events need 100 ms more than changes of a record.
fn world(capacity: u32) -> (Memory, Vec<Name>, SinkId) {
    let data_delay = Nanos::from_millis(100);
    let mut world = Memory::new(Settings { hosts: 3, data_delay, ..Settings::default() });
    let hosts = world.hosts();
    let types = parse_formats("struct one { int a; };").expect("it compiles");
    let types = types.into_iter().map(|format| EventType { format }).collect();
    let pressure = Pressure::Block { patience: Nanos::from_millis(10_000) };
    let sink = world.with(&hosts[0], |node, now| {
        node.create(&channel(), Spec { types, pressure, ..Spec::default() }, now).expect("created");
        let spec = SinkSpec { capacity, ..SinkSpec::default() };
        node.sink_subscribe(&channel(), spec, now).expect("a sink")
    });
    world.settle();
    for host in &hosts[1..] {
        world.with(host, |node, now| node.open(&channel(), now)).expect("opened");
    }
    world.settle();
    (world, hosts, sink)
}

fn join(world: &mut Memory, host: &Name) -> SourceId {
    let source = world.with(host, |node, now| node.source_subscribe(&channel(), SourceSpec::default(), now));
    world.settle();
    source.expect("a source")
}

fn leave(world: &mut Memory, host: &Name, source: SourceId) {
    world.with(host, |node, now| node.leave_source(source, now)).expect("left");
    // The other hosts know it, but the last events have not arrived.
    world.run_for(Nanos::from_millis(10));
}

/// Submits at most `most` events, until the source has to wait; returns the number of events that were accepted.
fn fill(world: &mut Memory, host: &Name, source: SourceId, most: usize) -> u64 {
    let event = Submission { payload: &[0; 4], ..Submission::default() };
    (0..most).take_while(|_| world.with(host, |node, now| node.submit(source, &event, now)).is_ok()).count() as u64
}

fn take(world: &mut Memory, host: &Name, sink: SinkId) -> u64 {
    let mut taken = Taken::default();
    let mut next = || world.with(host, |node, now| node.take(sink, &mut taken, now)).expect("the sink is there");
    std::iter::from_fn(|| next().then_some(())).count() as u64
}

fn counts(world: &Memory, host: &Name, sink: SinkId) -> SinkCounts {
    world.node(host).sink_counts(sink).expect("the sink is there")
}

#[test]
fn a_source_that_leaves_with_unread_events_lets_no_queue_overflow() {
    let (mut world, hosts, sink) = world(8);
    let (first, other) = (join(&mut world, &hosts[1]), join(&mut world, &hosts[2]));
    let mut accepted = fill(&mut world, &hosts[1], first, 64);
    assert_eq!(accepted, 4, "the other source has the other half");
    leave(&mut world, &hosts[1], first);
    accepted += fill(&mut world, &hosts[2], other, 64);
    world.settle();
    let counts = counts(&world, &hosts[0], sink);
    assert_eq!((accepted, counts.queued, counts.dropped), (12, 12, 0));
    assert_eq!(take(&mut world, &hosts[0], sink), 12);
}

#[test]
fn a_source_that_joins_while_another_one_has_filled_the_queue_loses_nothing() {
    let (mut world, hosts, sink) = world(8);
    let first = join(&mut world, &hosts[1]);
    let mut accepted = fill(&mut world, &hosts[1], first, 64);
    assert_eq!(accepted, 8, "it is alone");
    let other = join(&mut world, &hosts[2]);
    accepted += fill(&mut world, &hosts[2], other, 64);
    world.settle();
    let counts = counts(&world, &hosts[0], sink);
    assert_eq!((accepted, counts.queued, counts.dropped), (12, 12, 0));
    assert_eq!(take(&mut world, &hosts[0], sink), 12);
}

#[test]
fn sources_of_one_host_that_come_and_go_share_the_queue_once() {
    let (mut world, hosts, sink) = world(8);
    for round in 1..=3 {
        let first = join(&mut world, &hosts[1]);
        assert_eq!(fill(&mut world, &hosts[1], first, 64), 8, "round {round}");
        leave(&mut world, &hosts[1], first);
        for _ in 0..3 {
            let next = join(&mut world, &hosts[1]);
            assert_eq!(fill(&mut world, &hosts[1], next, 64), 0, "nothing was read");
            leave(&mut world, &hosts[1], next);
        }
        let counts = counts(&world, &hosts[0], sink);
        assert_eq!((counts.queued, counts.dropped), (8, 0));
        assert_eq!(take(&mut world, &hosts[0], sink), 8);
        world.settle();
    }
    world.node(&hosts[1]).assert_sound();
}

#[test]
fn a_source_that_waits_asks_about_the_events_of_one_that_has_left() {
    let (mut world, hosts, sink) = world(64);
    let first = join(&mut world, &hosts[1]);
    assert_eq!(fill(&mut world, &hosts[1], first, 3), 3);
    leave(&mut world, &hosts[1], first);
    let next = join(&mut world, &hosts[1]);
    assert_eq!(take(&mut world, &hosts[0], sink), 3, "too few for a report without a question");
    world.settle();
    assert_eq!(fill(&mut world, &hosts[1], next, 70), 61, "the three are not known to be read");
    world.settle();
    assert_eq!(fill(&mut world, &hosts[1], next, 70), 3);
    world.settle();
    let counts = counts(&world, &hosts[0], sink);
    assert_eq!((counts.queued, counts.dropped), (64, 0));
}

#[test]
fn a_source_that_passes_a_sink_over_asks_about_the_events_of_those_that_have_left() {
    let (mut world, hosts, sink) = world(32);
    let first: Vec<SourceId> = (0..32).map(|_| join(&mut world, &hosts[1])).collect();
    for source in first {
        assert_eq!(fill(&mut world, &hosts[1], source, 1), 1);
        leave(&mut world, &hosts[1], source);
    }
    let next = join(&mut world, &hosts[1]);
    assert_eq!(fill(&mut world, &hosts[1], next, 1), 0, "nothing was read");
    world.run_for(Nanos::from_millis(11_000));
    let event = Submission { payload: &[0; 4], ..Submission::default() };
    let submit = |world: &mut Memory| {
        let sent = world.with(&hosts[1], |node, now| node.submit(next, &event, now)).expect("accepted");
        (sent.remote, sent.dropped)
    };
    assert_eq!(submit(&mut world), (0, 1), "the patience is over");
    world.settle();
    assert_eq!(take(&mut world, &hosts[0], sink), 32, "too few of each for a report without a question");
    world.settle();
    assert_eq!(submit(&mut world), (0, 1), "this asks");
    world.settle();
    assert_eq!(submit(&mut world), (1, 0));
}

#[test]
fn events_too_few_for_a_report_are_known_to_be_read_within_two_seconds() {
    let (mut world, hosts, sink) = world(4_095);
    let source = join(&mut world, &hosts[1]);
    let told = |world: &Memory| world.node(&hosts[1]).source_counts(source).expect("the source is there").delivered;
    assert_eq!(fill(&mut world, &hosts[1], source, 7), 7);
    world.run_for(Nanos::from_millis(150));
    assert_eq!(take(&mut world, &hosts[0], sink), 7);
    world.run_for(Nanos::from_millis(50));
    assert_eq!(told(&world), 0, "the source has not asked");
    world.run_for(Nanos::from_millis(1_750));
    assert_eq!(told(&world), 7);
}

/// Takes the frames that a node has to send; discards its other outputs.
fn frames(node: &mut Node) -> Vec<(Lane, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(output) = node.poll() {
        if let Output::Send(_, lane, frame) = output {
            frames.push((lane, node.frame(frame).to_vec()));
        }
    }
    frames
}

#[test]
fn a_reader_that_keeps_up_sends_its_reports_with_the_answers_to_pings() {
    const REPORT: u8 = 7;
    const PONG: u8 = 9;
    let (mut world, hosts, sink) = world(4_095);
    let source = join(&mut world, &hosts[1]);
    let event = Submission { payload: &[0; Limits::WHOLE], ..Submission::default() };
    let (mut taken, mut answers) = (Taken::default(), Vec::new());
    for _ in 0..20 {
        let sent = world.with(&hosts[1], |node, now| {
            node.submit(source, &event, now).expect("accepted");
            frames(node)
        });
        for (lane, frame) in sent {
            let kinds = world.with(&hosts[0], |node, now| {
                node.arrive(&hosts[1], lane, &frame, now);
                node.take(sink, &mut taken, now).expect("the sink is there");
                // The second byte of a frame is its kind.
                frames(node).into_iter().map(|(_, frame)| frame[1]).collect::<Vec<u8>>()
            });
            answers.extend(kinds.contains(&REPORT).then_some(kinds));
        }
    }
    assert_eq!(answers, [[REPORT, PONG]; 3], "a ping follows each 96 KiB, and no report goes alone");
}
