//! Events under way of a source that leaves. The change of the record arrives before them, on the control lane.

use qfabric_channel::testing::{EAGER, Memory, Settings, World};
use qfabric_channel::{Action, EventType, Node, Policy, Pressure, SinkSpec, SourceId, SourceSpec, Spec, Submission};
use qfabric_ecode::parse_formats;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::{Instant, Nanos};

/// No host may send.
struct NobodySends;

impl Policy for NobodySends {
    fn allows(&self, _host: &Name, action: Action, _channel: &ChannelId) -> bool {
        action != Action::Send
    }
}

fn channel() -> ChannelId {
    ChannelId::data("v".parse().expect("a name"))
}

fn source(node: &mut Node, now: Instant) -> SourceId {
    node.source_subscribe(&channel(), SourceSpec::default(), now).expect("a source")
}

/// A source of `h0` and a sink of `h1` on a channel that blocks. Events need 100 ms more than changes of a record.
fn world() -> (Memory, Vec<Name>, SourceId) {
    let data_delay = Nanos::from_millis(100);
    let mut world = Memory::new(Settings { hosts: 2, data_delay, ..Settings::default() });
    let hosts = world.hosts();
    let types = parse_formats("struct one { int a; };").expect("it compiles");
    let types = types.into_iter().map(|format| EventType { format }).collect();
    let pressure = Pressure::Block { patience: Nanos::from_millis(10_000) };
    let from = world.with(&hosts[0], |node, now| {
        node.create(&channel(), Spec { types, pressure, ..Spec::default() }, now).expect("created");
        source(node, now)
    });
    world.settle();
    world.with(&hosts[1], |node, now| {
        node.open(&channel(), now).expect("opened");
        let sink = SinkSpec { capacity: EAGER, ..SinkSpec::default() };
        node.sink_subscribe(&channel(), sink, now).expect("a sink");
    });
    world.settle();
    (world, hosts, from)
}

fn submit(node: &mut Node, from: SourceId, now: Instant) {
    let event = Submission { payload: &[0; 4], ..Submission::default() };
    for _ in 0..3 {
        assert_eq!(node.submit(from, &event, now).expect("submitted").remote, 1);
    }
}

fn leave(node: &mut Node, from: SourceId, now: Instant) {
    submit(node, from, now);
    node.leave_source(from, now).expect("left");
}

#[test]
fn events_under_way_arrive_although_their_source_has_left() {
    let ways: [fn(&mut Node, SourceId, Instant); 3] = [
        leave,
        |node, from, now| {
            submit(node, from, now);
            node.close(&channel(), now).expect("closed");
        },
        |node, _, now| {
            let from = source(node, now);
            leave(node, from, now);
        },
    ];
    for way in ways {
        let (mut world, hosts, from) = world();
        world.with(&hosts[0], |node, now| way(node, from, now));
        world.settle();
        assert_eq!(world.delivered(&hosts[1]).len(), 3);
        world.node(&hosts[1]).assert_sound();
    }
}

#[test]
fn a_source_that_has_left_sends_nothing_more_once_its_host_may_not() {
    let (mut world, hosts, from) = world();
    world.with(&hosts[0], |node, now| leave(node, from, now));
    world.run_for(Nanos::from_millis(10));
    world.with(&hosts[1], |node, now| node.set_policy(Box::new(NobodySends), now));
    world.settle();
    assert_eq!(world.delivered(&hosts[1]).len(), 0);
}
