//! Whatever arrives from another host, a node lives on, and says the same of itself as before.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qfabric_channel::testing::{Memory, Settings, World, readable};
use qfabric_channel::{EventType, Lane, SinkSpec, Spec};
use qfabric_types::channel::{ChannelId, Plane};

fuzz_target!(|frames: Vec<Vec<u8>>| {
    let mut world = Memory::new(Settings { hosts: 4, ..Settings::default() });
    let hosts = world.hosts();
    let channel = ChannelId { plane: Plane::Data, name: "v".parse().expect("a name") };
    let types = qfabric_ecode::parse_formats("struct one { int a; };").expect("it compiles");
    let types = types.into_iter().map(|format| EventType { format }).collect();
    world.with(&hosts[0], |node, now, port| {
        node.create(&channel, Spec { types, ..Spec::default() }, now, port).expect("created");
        node.sink_subscribe(&channel, SinkSpec::default(), now, port).expect("a sink");
    });
    world.settle();
    let before = world.node(&hosts[0]).directory().host(&hosts[0]).cloned();
    for frame in &frames {
        readable(frame);
        world.with(&hosts[0], |node, now, port| node.arrive(&hosts[1], Lane::Control, frame, now, port));
    }
    world.settle();
    let after = world.node(&hosts[0]).directory().host(&hosts[0]).cloned();
    assert_eq!(before, after);
});
