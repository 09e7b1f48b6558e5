//! Q-channels, over Zenoh (`link`) or over plain sockets (`plain`): each topic is a channel, `control` the Q-channel of
//! `bulk`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use qfabric_channel::{
    Config as NodeConfig, EventType, Frame, Incarnation, Node, Output, SinkId, SinkSpec, SourceId, SourceSpec, Spec,
    Submission, Taken,
};
use qfabric_jit::Jit;
use qfabric_link::security::ChannelRights;
use qfabric_link::{Address, Config, EngineKind, Link, Listener, NodeOwner, Security};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::format::Format;
use qfabric_types::monitor::reading_format;
use qfabric_types::{Instant, Nanos};

use super::{Each, Peer, Publish, now_ns, until};

pub(crate) struct Ours {
    link: Arc<Link<Echo>>,
    called: Called,
    /// Whether this host connects to another one, which has to appear before channels are opened.
    calls: bool,
    slack: Nanos,
}

/// The callbacks for the events of each sink.
type Called = Arc<Mutex<HashMap<SinkId, Each>>>;

/// Ignores all outputs.
pub(crate) struct Quiet;

impl Listener for Quiet {
    fn on_output(&self, _output: Output, _is_arrival: bool) {}
}

pub(crate) fn channel(topic: &str) -> ChannelId {
    let (plane, name) = if topic == "control" { (Plane::Quality, "bulk") } else { (Plane::Data, topic) };
    ChannelId { plane, name: name.parse().expect("a name") }
}

/// The network configuration of a host.
pub(crate) fn config(rival: &str, net: &str, host: usize) -> Config {
    let mut config = Config::new(format!("host-{host}").parse().expect("a name"));
    config.engine = if rival == "plain" { EngineKind::Plain } else { EngineKind::Zenoh };
    let address: Address = format!("{net}.1:7700").parse().expect("an address");
    if host == 0 {
        config.listen = vec![address]
    } else {
        config.peers = vec![address]
    }
    config
}

/// A node as in the daemon: its Q-channels carry readings, and its filters are machine code.
pub(crate) fn node(config: &Config, host: usize) -> Node {
    node_of(config, host, None)
}

/// A node with a combiner.
pub(crate) fn node_of(config: &Config, host: usize, combiner: Option<Name>) -> Node {
    let mut node = NodeConfig::new(config.host.clone(), Incarnation::new(1, host as u32 + std::process::id()));
    node.combiner = combiner;
    if let Security::Tls(tls) = &config.security {
        node.policy = Box::new(ChannelRights(tls.access.clone()));
    }
    node.engines = Box::new(|program, limits| {
        let jit = Jit::new(program, limits).map_err(|error| error.to_string())?;
        Ok(Box::new(jit) as Box<dyn qfabric_ecode::Engine + Send>)
    });
    node.quality = Spec { types: vec![EventType { format: reading_format() }], ..Spec::default() };
    Node::new(node, Instant::new(now_ns()))
}

/// Opens the channel of a topic, or creates it; a Q-channel is opened with its data channel.
pub(crate) fn create(node: &mut Node, topic: &str, now: Instant) {
    let format = Format { name: "bytes".into(), size: 0, align: 1, fields: Vec::new() };
    let spec = Spec { types: vec![EventType { format }], ..Spec::default() };
    let data = ChannelId { plane: Plane::Data, ..channel(topic) };
    if !node.is_open(&data) && node.open(&data, now).is_err() {
        node.create(&data, spec, now).expect("a channel");
    }
}

pub(crate) fn join(node: &mut Node, topic: &str, now: Instant) -> SinkId {
    create(node, topic, now);
    node.sink_subscribe(&channel(topic), SinkSpec::default(), now).expect("a sink")
}

pub(crate) fn source(node: &mut Node, topic: &str, now: Instant) -> SourceId {
    create(node, topic, now);
    node.source_subscribe(&channel(topic), SourceSpec::default(), now).expect("a source")
}

impl Ours {
    pub(crate) fn open(rival: &str, net: &str, host: usize) -> Ours {
        let config = config(rival, net, host);
        Ours::open_node(&config, node(&config, host), Nanos::ZERO)
    }

    /// Opens a host of another configuration. `slack`: of its events.
    pub(crate) fn open_node(config: &Config, node: Node, slack: Nanos) -> Ours {
        let called = Called::default();
        let owner = Echo { node, called: called.clone(), back: None, taken: Taken::default() };
        let link = Link::open(config, owner, Arc::new(Quiet), || {}).expect("a link");
        Ours { link: Arc::new(link), called, calls: !config.peers.is_empty(), slack }
    }

    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Node, Instant) -> R) -> R {
        self.link.with(|echo, now| act(&mut echo.node, now))
    }

    /// Waits until the other side has appeared.
    pub(crate) fn ready(&self) {
        until(|| !self.calls || self.link.with(|echo, _| echo.node.directory().hosts().count()) > 1);
    }
}

impl Peer for Ours {
    fn subscribe(&self, topic: &'static str, each: Each) {
        self.ready();
        self.link.with(|echo, now| {
            let sink = join(&mut echo.node, topic, now);
            self.called.lock().expect("no panic").insert(sink, each);
        });
    }

    fn publish(&self, topic: &'static str) -> Publish {
        self.ready();
        let link = Arc::clone(&self.link);
        let from = link.with(|echo, now| source(&mut echo.node, topic, now));
        let slack = self.slack;
        Box::new(move |bytes| {
            let event = Submission { payload: bytes, slack, ..Submission::default() };
            link.with(|echo, now| echo.node.submit(from, &event, now)).expect("submitted");
        })
    }

    fn echo(&self) {
        self.link.with(|echo, now| {
            join(&mut echo.node, "ping", now);
            echo.back = Some(source(&mut echo.node, "pong", now));
        });
    }

    fn wait_for(&self, topic: &'static str, sinks: usize) {
        let id = channel(topic);
        until(|| {
            self.link.with(|echo, _| {
                let view = echo.node.directory().channel(&id);
                view.is_some_and(|view| view.sinks >= sinks)
            })
        });
    }
}

/// Answers in the place in which a resource manager answers: behind the lock, before the next frame is handled.
pub(crate) struct Echo {
    node: Node,
    called: Called,
    /// The source for the answers; `None`: events go to the callbacks.
    back: Option<SourceId>,
    taken: Taken,
}

impl NodeOwner for Echo {
    fn call<R>(&mut self, _now: Instant, act: impl FnOnce(&mut Node) -> R) -> R {
        act(&mut self.node)
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        let output = self.node.poll();
        let Some(Output::Ready(sink)) = output else { return output };
        while self.node.take(sink, &mut self.taken, now).expect("the sink is there") {
            let Some(event) = self.taken.event() else { break };
            match (self.back, self.called.lock().expect("no panic").get_mut(&sink)) {
                (Some(back), _) => {
                    let event = Submission { payload: &[0; 1024][..event.payload.len()], ..Submission::default() };
                    self.node.submit(back, &event, now).expect("submitted");
                }
                (None, Some(each)) => each(event.payload),
                (None, None) => {}
            }
        }
        output
    }

    fn frame(&self, frame: Frame) -> &[u8] {
        self.node.frame(frame)
    }

    fn memory(&self, frame: Frame) -> Option<&Arc<Vec<u8>>> {
        self.node.memory(frame)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.node.next_wakeup()
    }

    fn wake(&mut self, now: Instant) {
        self.node.wake(now);
    }
}
