//! Regression tests for defects that the fuzzer found (`make fuzz`).

use qfabric_channel::testing::{Memory, Settings, World};
use qfabric_channel::{EventType, Lane, Limits, PROTOCOL, SinkId, SinkSpec, SourceSpec, Spec, Submission};
use qfabric_ecode::parse_formats;
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
