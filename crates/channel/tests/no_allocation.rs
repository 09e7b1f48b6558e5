//! On the way of an event, from submission to the application, no memory is taken.

use qfabric_channel::testing::{Memory, Settings, World};
use qfabric_channel::{
    Delivery, Destination, Direction, Event, EventType, FilterSpec, Lane, Notice, Port, SinkId, SinkSpec, SourceId,
    SourceSpec, Spec, Spot, Submission, Taken,
};
use qfabric_ecode::parse_formats;
use qfabric_types::channel::{ChannelId, Plane};

/// Keeps the last frame.
struct Last(Vec<u8>);

impl Port for Last {
    fn send(&mut self, _: Destination<'_>, _: Lane, frame: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(frame);
    }
    fn listen(&mut self, _: &ChannelId) {}
    fn ignore(&mut self, _: &ChannelId) {}
    fn deliver(&mut self, _: SinkId, _: &Event<'_>) {}
    fn ready(&mut self, _: SinkId) {}
    fn writable(&mut self, _: SourceId) {}
    fn notice(&mut self, _: Notice) {}
}

#[test]
fn an_event_on_its_way_takes_no_memory() {
    let mut world = Memory::new(Settings { hosts: 4, ..Settings::default() });
    let hosts = world.hosts();
    let channel = ChannelId { plane: Plane::Data, name: "v".parse().expect("a name") };
    let types = parse_formats("struct one { int a; int b; };").expect("it compiles");
    let spec = Spec { types: types.into_iter().map(|format| EventType { format }).collect(), ..Spec::default() };
    let from = world.with(&hosts[0], |node, now, port| {
        node.create(&channel, spec, now, port).expect("created");
        node.source_subscribe(&channel, SourceSpec::default(), now, port).expect("a source")
    });
    world.settle();
    let sink = SinkSpec { delivery: Delivery::Queue { capacity: 8 }, ..SinkSpec::default() };
    let to = world.with(&hosts[1], |node, now, port| {
        node.open(&channel, now, port).expect("opened");
        node.sink_subscribe(&channel, sink, now, port).expect("a sink")
    });
    world.settle();
    let text = "struct input { int a; int sinks; struct { long load; } sink[4]; }; return input.a == 0;".to_owned();
    let spot = Spot { channel, direction: Direction::Out, name: "all".parse().expect("a name") };
    let filter = FilterSpec { spot, sink: None, types: vec![], text, parameters: vec![] };
    world.with(&hosts[0], |node, _, _| node.install(&filter)).expect("it compiles");
    let (mut port, mut taken) = (Last(Vec::with_capacity(1 << 16)), Taken::default());
    let mut most = 0;
    for round in 0..200 {
        let asked = allocation_counter::measure(|| {
            world.with(&hosts[0], |node, now, _| {
                let event = Submission { attributes: &[("q", 1)], payload: &[0; 8], ..Submission::default() };
                node.submit(from, &event, now, &mut port).expect("submitted");
            });
            let frame = std::mem::take(&mut port.0);
            world.with(&hosts[1], |node, now, _| {
                node.arrive(&hosts[0], Lane::Data, &frame, now, &mut port);
                // For half of the time nobody takes: the queue is full, and the oldest makes room.
                if round % 20 < 10 {
                    node.take(to, &mut taken, now, &mut port).expect("the sink is there");
                }
            });
            port.0 = frame;
        });
        if round >= 100 {
            most = most.max(asked.count_total);
        }
    }
    assert_eq!(most, 0, "allocations of the worst event");
}
