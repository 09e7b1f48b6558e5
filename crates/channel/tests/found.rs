//! Regression tests for defects that the fuzzer found (`make fuzz`).

use qfabric_channel::testing::{Memory, Settings, World};
use qfabric_channel::{
    EventType, Lane, Limits, PROTOCOL, Pressure, SinkId, SinkSpec, SourceId, SourceSpec, Spec, Submission,
};
use qfabric_ecode::parse_formats;
use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name};

fn channel() -> ChannelId {
    ChannelId::data("v".parse().expect("a name"))
}

/// Four hosts with a channel that the first one created; the first two have a sink.
fn world() -> (Memory, Vec<Name>, SinkId) {
    let mut world = Memory::new(Settings { hosts: 4, ..Settings::default() });
    let hosts = world.hosts();
    let types = parse_formats("struct one { int a; };").expect("it compiles");
    let types = types.into_iter().map(|format| EventType { format }).collect();
    let made = world.with(&hosts[0], |node, now| {
        node.create(&channel(), Spec { types, ..Spec::default() }, now).expect("created");
        node.sink_subscribe(&channel(), SinkSpec::default(), now).expect("a sink")
    });
    world.settle();
    world.with(&hosts[1], |node, now| {
        node.open(&channel(), now).expect("opened");
        node.sink_subscribe(&channel(), SinkSpec::default(), now).expect("a sink")
    });
    world.settle();
    (world, hosts, made)
}

/// A frame's beginning: version, kind, incarnation.
fn begin(kind: u8, incarnation: u64) -> Vec<u8> {
    [&[PROTOCOL, kind][..], &incarnation.to_le_bytes()].concat()
}

fn arrive(world: &mut Memory, hosts: &[Name], frame: &[u8]) {
    world.with(&hosts[0], |node, now| node.arrive(&hosts[1], Lane::Control, frame, now));
}

#[test]
fn an_event_as_the_first_word_of_a_new_start_leaves_no_seat_of_the_old_one() {
    let (mut world, hosts, _) = world();
    let later = world.node(&hosts[1]).incarnation().0 + 1;
    arrive(&mut world, &hosts, &[begin(1, later), vec![0; 24]].concat());
    world.node(&hosts[0]).assert_sound();
    let gone = qfabric_channel::Notice::HostVanished(hosts[1].clone());
    assert_eq!(world.notices(&hosts[0]).iter().filter(|notice| **notice == gone).count(), 1, "its old start has ended");
    let source = world.with(&hosts[0], |node, now| node.source_subscribe(&channel(), SourceSpec::default(), now));
    let event = Submission { payload: &[0; 4], ..Submission::default() };
    let sent = world.with(&hosts[0], |node, now| node.submit(source.expect("a source"), &event, now));
    assert_eq!(sent.map(|sent| (sent.remote, sent.local)), Ok((0, 1)));
}

#[test]
fn a_host_that_says_it_has_sent_as_many_as_can_be_counted_does_not_stop_this_ones_sources() {
    let (mut world, hosts, sink) = world();
    let (here, there) = (world.node(&hosts[0]).incarnation().0, world.node(&hosts[1]).incarnation().0);
    let source = world.with(&hosts[0], |node, now| node.source_subscribe(&channel(), SourceSpec::default(), now));
    let source = source.expect("a source");
    for from in [1_u64, 2] {
        // `h1` was the first host that `h0` met.
        let to = [
            &here.to_le_bytes()[..],
            &1_u64.to_le_bytes(),
            &9_u32.to_le_bytes(),
            &from.to_le_bytes(),
            &[0, 1, b'v', 1, 0],
        ]
        .concat();
        let marked = [&sink.0.to_le_bytes()[..], &from.to_le_bytes(), &u64::MAX.to_le_bytes()].concat();
        arrive(&mut world, &hosts, &[begin(6, there), to, marked].concat());
    }
    let event = Submission { payload: &[0; 4], ..Submission::default() };
    world.with(&hosts[0], |node, now| node.submit(source, &event, now)).expect("submitted");
    assert_eq!(world.node(&hosts[0]).sink_counts(sink).map(|counts| counts.sent), Ok(u64::MAX));
}

/// Changes that hold a channel without types, created by `h1`, and add as many sources as one channel may have.
fn crowd(channel: u8) -> Vec<u8> {
    let hold = [&[1, 0, 1, channel][..], &[0; 8], &[2, b'h', b'1', 0, 0, 0, 0, 0, 0]].concat();
    let source = |number: u32| [&[3, 0, 1, channel][..], &number.to_le_bytes(), &[0, 0, 0]].concat();
    let sources = (0..Limits::MEMBERS as u32).flat_map(source);
    [&(1 + Limits::MEMBERS as u16).to_le_bytes()[..], &hold].concat().into_iter().chain(sources).collect()
}

/// Four thousand members on each of two thousand channels would take some gigabytes.
#[test]
fn a_host_has_no_more_members_on_all_channels_than_it_may_tell_of_at_once() {
    let (mut world, hosts, _) = world();
    let there = world.node(&hosts[1]).incarnation().0;
    for channel in b'a'..b'g' {
        let version = world.node(&hosts[0]).directory().host(&hosts[1]).expect("it is there").version;
        arrive(&mut world, &hosts, &[begin(2, there), version.to_le_bytes().to_vec(), crowd(channel)].concat());
    }
    let record = world.node(&hosts[0]).directory().host(&hosts[1]).expect("it is there");
    let members: usize = record.channels.values().map(|held| held.sources.len() + held.sinks.len()).sum();
    assert_eq!(members, Limits::HOST_MEMBERS);
    assert_eq!(world.node(&hosts[0]).counts().beyond_limit as usize, 6 * Limits::MEMBERS + 1 - Limits::HOST_MEMBERS);
    world.node(&hosts[0]).assert_sound();
}

/// A world whose channel blocks: sources and a sink of the first host, a source of the second.
fn blocking(capacity: u32) -> (Memory, Vec<Name>, SinkId, [SourceId; 2]) {
    let mut world = Memory::new(Settings { hosts: 2, ..Settings::default() });
    let hosts = world.hosts();
    let types = parse_formats("struct one { int a; };").expect("it compiles");
    let types = types.into_iter().map(|format| EventType { format }).collect();
    let pressure = Pressure::Block { patience: Nanos::from_millis(10_000) };
    let (sink, own) = world.with(&hosts[0], |node, now| {
        node.create(&channel(), Spec { types, pressure, ..Spec::default() }, now).expect("created");
        let spec = SinkSpec { capacity, ..SinkSpec::default() };
        let sink = node.sink_subscribe(&channel(), spec, now).expect("a sink");
        (sink, node.source_subscribe(&channel(), SourceSpec::default(), now).expect("a source"))
    });
    world.settle();
    let other = world.with(&hosts[1], |node, now| {
        node.open(&channel(), now).expect("opened");
        node.source_subscribe(&channel(), SourceSpec::default(), now).expect("a source")
    });
    world.settle();
    (world, hosts, sink, [own, other])
}

/// Submits until the source has to wait; returns the number of events that were accepted.
fn fill(world: &mut Memory, host: &Name, source: SourceId, payload: &[u8]) -> u64 {
    let event = Submission { payload, ..Submission::default() };
    (0..64).take_while(|_| world.with(host, |node, now| node.submit(source, &event, now)).is_ok()).count() as u64
}

#[test]
fn a_channel_that_blocks_drops_no_large_event_of_its_own_host() {
    let (mut world, hosts, sink, [own, other]) = blocking(64);
    world.with(&hosts[1], |node, now| node.leave_source(other, now)).expect("left");
    world.settle();
    assert_eq!(fill(&mut world, &hosts[0], own, &vec![0; 600_000]), 6, "the seventh would not fit");
    let counts = world.node(&hosts[0]).sink_counts(sink).expect("the sink is there");
    assert_eq!((counts.queued, counts.dropped), (6, 0));
}

#[test]
fn on_a_channel_that_blocks_sources_of_the_sinks_host_leave_room_for_those_of_others() {
    let (mut world, hosts, sink, [own, other]) = blocking(8);
    let accepted = fill(&mut world, &hosts[0], own, &[0; 4]) + fill(&mut world, &hosts[1], other, &[0; 4]);
    world.settle();
    let counts = world.node(&hosts[0]).sink_counts(sink).expect("the sink is there");
    assert_eq!((accepted, counts.queued, counts.dropped), (8, 8, 0));
}
