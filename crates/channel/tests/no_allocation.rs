//! Delivering an event, from submission to the application, allocates no memory.

use qfabric_channel::testing::{Memory, Settings, World};
use qfabric_channel::{
    Direction, EventType, FilterId, FilterSpec, Lane, Limits, Node, Output, SinkId, SinkSpec, SourceId, SourceSpec,
    Spec, Submission, Taken,
};
use qfabric_ecode::parse_formats;
use qfabric_types::channel::{ChannelId, Name, Plane};

/// Keeps a copy of the last frame, and discards the other outputs.
fn drain(node: &mut Node, last: &mut Vec<u8>) {
    while let Some(output) = node.poll() {
        if let Output::Send(_, _, frame) = output {
            last.clear();
            last.extend_from_slice(node.frame(frame));
        }
    }
}

/// A source on one host and a sink on another one, with buffers that are large enough for all frames.
struct Way {
    world: Memory,
    hosts: Vec<Name>,
    source: SourceId,
    sink: SinkId,
    frame: Vec<u8>,
    other: Vec<u8>,
    taken: Taken,
}

impl Way {
    fn new(channel: &ChannelId) -> Way {
        let mut world = Memory::new(Settings { hosts: 4, ..Settings::default() });
        let hosts = world.hosts();
        let types = parse_formats("struct one { int a; int b; };").expect("it compiles");
        let spec = Spec { types: types.into_iter().map(|format| EventType { format }).collect(), ..Spec::default() };
        let source = world.with(&hosts[0], |node, now| {
            node.create(channel, spec, now).expect("created");
            node.source_subscribe(channel, SourceSpec::default(), now).expect("a source")
        });
        world.settle();
        let sink = world.with(&hosts[1], |node, now| {
            node.open(channel, now).expect("opened");
            node.sink_subscribe(channel, SinkSpec { capacity: 8, ..SinkSpec::default() }, now).expect("a sink")
        });
        world.settle();
        let [frame, other] = [(); 2].map(|()| Vec::with_capacity(1 << 16));
        Way { world, hosts, source, sink, frame, other, taken: Taken::default() }
    }

    /// Installs a filter for all sinks at the source.
    fn install(&mut self, channel: &ChannelId, text: &str) {
        let id = FilterId { channel: channel.clone(), direction: Direction::Out, name: "all".parse().expect("a name") };
        let filter = FilterSpec { id, sink: None, types: vec![], text: text.to_owned(), parameters: vec![] };
        self.world.with(&self.hosts[0], |node, _| node.install(&filter)).expect("it compiles");
    }

    fn submit(&mut self, payload: &[u8]) {
        self.world.with(&self.hosts[0], |node, now| {
            let event = Submission { attributes: &[("q", 1)], payload, ..Submission::default() };
            node.submit(self.source, &event, now).expect("submitted");
            drain(node, &mut self.frame);
        });
    }

    /// The frame arrives; the application takes the event if `takes`.
    fn arrive(&mut self, takes: bool) {
        self.world.with(&self.hosts[1], |node, now| {
            node.arrive(&self.hosts[0], Lane::Data, &self.frame, now);
            drain(node, &mut self.other);
            if takes {
                node.take(self.sink, &mut self.taken, now).expect("the sink is there");
            }
        });
    }
}

const FILTER: &str = "struct input { int a; int sinks; struct { long load; } sink[4]; }; return input.a == 0;";

/// The largest number of allocations of one event.
fn most_allocations(payload: &[u8]) -> u64 {
    let channel = ChannelId { plane: Plane::Data, name: "v".parse().expect("a name") };
    let mut way = Way::new(&channel);
    way.install(&channel, FILTER);
    let mut allocations_of = |round: u64| {
        allocation_counter::measure(|| {
            way.submit(payload);
            // In half of the rounds no event is taken: the queue is full, and the oldest event makes room.
            way.arrive(round % 20 < 10);
        })
        .count_total
    };
    for round in 0..100 {
        allocations_of(round); // fills all buffers and queues
    }
    (100..200).map(allocations_of).max().expect("events")
}

#[test]
fn an_event_on_its_way_takes_no_memory() {
    assert_eq!(most_allocations(&[0; 8]), 0);
}

#[test]
fn a_long_event_on_its_way_takes_no_memory() {
    assert_eq!(most_allocations(&[0; Limits::WHOLE]), 0);
}
