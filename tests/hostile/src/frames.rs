//! Properties of frames from other hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qfabric_channel::testing::readable;
use qfabric_channel::{
    Action, Config, EventType, Incarnation, Lane, Node, Policy, SinkId, SinkSpec, SourceId, SourceSpec, Spec,
    Submission, Taken,
};
use qfabric_ecode::parse_formats;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::{Instant, Nanos};

use crate::{NodeOutputs, Script};

/// Allows all hosts to join, send and install filters, and to create channels while `create` is true. With
/// `create`, an earlier creation by any host may replace that of this host.
#[derive(Clone, Debug)]
struct Rules {
    create: Arc<AtomicBool>,
}

impl Policy for Rules {
    fn allows(&self, _: &Name, action: Action, _: &ChannelId) -> bool {
        action != Action::Create || self.create.load(Ordering::Relaxed)
    }
}

/// The time at which every input begins.
pub const BEGIN: Instant = Instant::new(1_000_000_000_000);

/// Creates a node without channels.
pub fn open_node(host: &str) -> Node {
    node_with(host, &Arc::new(AtomicBool::new(true)))
}

fn node_with(host: &str, create: &Arc<AtomicBool>) -> Node {
    let config = Config::new(host.parse().expect("a name"), Incarnation::new(1, 7));
    Node::new(Config { policy: Box::new(Rules { create: create.clone() }), ..config }, BEGIN)
}

/// The channel of the node under test.
pub fn channel() -> ChannelId {
    ChannelId::data("v".parse().expect("a name"))
}

/// The event types of the channel.
pub(crate) fn types() -> Spec {
    let types = parse_formats("struct one { int a; short b[2]; }; struct two { long c; };").expect("the text is valid");
    Spec { types: types.into_iter().map(|format| EventType { format }).collect(), ..Spec::default() }
}

/// Creates a host with the channel, a source (number 1) and two sinks (numbers 2 and 3).
pub fn node_under_test() -> Node {
    with_members(open_node("h0"))
}

fn with_members(mut node: Node) -> Node {
    node.create(&channel(), types(), BEGIN).expect("the channel is created");
    node.source_subscribe(&channel(), SourceSpec::default(), BEGIN).expect("a source");
    node.sink_subscribe(&channel(), SinkSpec::default(), BEGIN).expect("a sink");
    node.sink_subscribe(&channel(), SinkSpec::default(), BEGIN).expect("a sink");
    node
}

/// A node survives any frames from other hosts, and its rosters match its directory. When the other hosts are
/// gone, the node keeps nothing of them. Unless it believes creations, its own record in the directory is
/// unchanged.
///
/// Input: a byte (bit 0: the node believes creations), then pieces. A piece is a byte and a frame. Bits of the
/// byte: bit 0 the sending host, bit 1 the data lane, the other bits the time that passes.
pub fn channel_frame(bytes: &[u8]) {
    let mut script = Script(bytes);
    let create = script.byte() & 1 == 1;
    let may_create = Arc::new(AtomicBool::new(true));
    let (mut node, mut outputs, mut now) = (with_members(node_with("h0", &may_create)), NodeOutputs::default(), BEGIN);
    may_create.store(create, Ordering::Relaxed);
    let others: [Name; 2] = ["h1", "h2"].map(|name| name.parse().expect("a name"));
    others.iter().for_each(|host| node.appeared(host, now));
    let before = node.directory().host(node.host()).cloned();
    let mut taken = Taken::default();
    while !script.is_over() {
        let head = script.byte();
        let (from, lane) = (&others[usize::from(head & 1)], if head & 2 == 0 { Lane::Control } else { Lane::Data });
        let frame = script.piece();
        readable(frame);
        node.arrive(from, lane, frame, now);
        node.assert_sound();
        let event = Submission { payload: &[3; 8], ..Submission::default() };
        let sent = node.submit(SourceId(1), &event, now);
        let received = node.take(SinkId(2), &mut taken, now);
        assert!(
            create || (sent.is_ok() && received.is_ok()),
            "a frame ended members of this host: {sent:?} {received:?}"
        );
        now = now + Nanos::from_micros(1 << (head >> 2 & 31));
        if node.next_wakeup().is_some_and(|at| at <= now) {
            node.wake(now);
        }
        outputs.take_from(&mut node);
        outputs.frames.clear();
    }
    others.iter().for_each(|host| node.vanished(host, now));
    node.assert_sound();
    assert!(create || node.directory().host(node.host()) == before.as_ref());
    assert_eq!(node.directory().hosts().count(), 1);
}
