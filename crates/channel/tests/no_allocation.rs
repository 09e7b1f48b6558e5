//! Delivering an event, from submission to the application, allocates no memory.

use qfabric_channel::testing::{Memory, Settings, World};
use qfabric_channel::{
    Direction, EventType, FilterId, FilterSpec, Lane, Node, Output, SinkSpec, SourceSpec, Spec, Submission, Taken,
};
use qfabric_ecode::parse_formats;
use qfabric_types::channel::{ChannelId, Plane};

/// Keeps a copy of the last frame, and discards the other outputs.
fn drain(node: &mut Node, last: &mut Vec<u8>) {
    while let Some(output) = node.poll() {
        if let Output::Send(_, _, frame) = output {
            last.clear();
            last.extend_from_slice(node.frame(frame));
        }
    }
}

#[test]
fn an_event_on_its_way_takes_no_memory() {
    let mut world = Memory::new(Settings { hosts: 4, ..Settings::default() });
    let hosts = world.hosts();
    let channel = ChannelId { plane: Plane::Data, name: "v".parse().expect("a name") };
    let types = parse_formats("struct one { int a; int b; };").expect("it compiles");
    let spec = Spec { types: types.into_iter().map(|format| EventType { format }).collect(), ..Spec::default() };
    let from = world.with(&hosts[0], |node, now| {
        node.create(&channel, spec, now).expect("created");
        node.source_subscribe(&channel, SourceSpec::default(), now).expect("a source")
    });
    world.settle();
    let sink = SinkSpec { capacity: 8, ..SinkSpec::default() };
    let to = world.with(&hosts[1], |node, now| {
        node.open(&channel, now).expect("opened");
        node.sink_subscribe(&channel, sink, now).expect("a sink")
    });
    world.settle();
    let text = "struct input { int a; int sinks; struct { long load; } sink[4]; }; return input.a == 0;".to_owned();
    let id = FilterId { channel, direction: Direction::Out, name: "all".parse().expect("a name") };
    let filter = FilterSpec { id, sink: None, types: vec![], text, parameters: vec![] };
    world.with(&hosts[0], |node, _| node.install(&filter)).expect("it compiles");
    let (mut frame, mut taken) = (Vec::with_capacity(1 << 16), Taken::default());
    let (mut other, mut most) = (Vec::with_capacity(1 << 16), 0);
    for round in 0..200 {
        let asked = allocation_counter::measure(|| {
            world.with(&hosts[0], |node, now| {
                let event = Submission { attributes: &[("q", 1)], payload: &[0; 8], ..Submission::default() };
                node.submit(from, &event, now).expect("submitted");
                drain(node, &mut frame);
            });
            world.with(&hosts[1], |node, now| {
                node.arrive(&hosts[0], Lane::Data, &frame, now);
                drain(node, &mut other);
                // In half of the rounds no event is taken: the queue is full, and the oldest event makes room.
                if round % 20 < 10 {
                    node.take(to, &mut taken, now).expect("the sink is there");
                }
            });
        });
        if round >= 100 {
            most = most.max(asked.count_total);
        }
    }
    assert_eq!(most, 0, "allocations of the worst event");
}
