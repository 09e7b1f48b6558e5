//! Q-channels, over Zenoh (`link`) or over plain sockets (`plain`): each topic is a channel, `control` the Q-channel of
//! `bulk`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use qfabric_channel::{
    Config as NodeConfig, Delivery, Destination, Event, EventType, Incarnation, Lane, Node, Notice, Port, SinkId,
    SinkSpec, SourceId, SourceSpec, Spec, Submission,
};
use qfabric_jit::Jit;
use qfabric_link::{Address, Config, EngineKind, Inside, Link, Listener};
use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Plane};
use qfabric_types::format::Format;
use qfabric_types::monitor::reading_format;

use super::{Each, Peer, Publish, now_ns, until};

pub struct Ours {
    link: Arc<Link<Echo>>,
    told: Arc<Told>,
    /// Whether there is somebody to be known before channels are opened.
    calls: bool,
}

/// Calls what was subscribed.
#[derive(Default)]
struct Told(Mutex<HashMap<SinkId, Each>>);

impl Listener for Told {
    fn deliver(&self, sink: SinkId, event: &Event<'_>) {
        self.0.lock().expect("no panic").get_mut(&sink).into_iter().for_each(|each| each(event.payload));
    }

    fn ready(&self, _sink: SinkId) {}

    fn writable(&self, _source: SourceId) {}

    fn notice(&self, _notice: Notice) {}
}

/// Is told nothing.
pub struct Quiet;

impl Listener for Quiet {
    fn deliver(&self, _sink: SinkId, _event: &Event<'_>) {}

    fn ready(&self, _sink: SinkId) {}

    fn writable(&self, _source: SourceId) {}

    fn notice(&self, _notice: Notice) {}
}

/// The channel of a topic.
pub fn channel(topic: &str) -> ChannelId {
    let (plane, name) = if topic == "control" { (Plane::Quality, "bulk") } else { (Plane::Data, topic) };
    ChannelId { plane, name: name.parse().expect("a name") }
}

/// How a host takes part.
pub fn config(rival: &str, net: &str, host: usize) -> Config {
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

/// A node whose Q-channels carry readings, and whose filters are machine code, as the daemon's.
pub fn node(config: &Config, host: usize) -> Node {
    let mut node = NodeConfig::new(config.host.clone(), Incarnation::new(1, host as u32 + std::process::id()));
    node.engines = Box::new(|program, limits| {
        let jit = Jit::new(program, limits).map_err(|error| error.to_string())?;
        Ok(Box::new(jit) as Box<dyn qfabric_ecode::Engine + Send>)
    });
    node.quality = Spec { types: vec![EventType { format: reading_format() }], ..Spec::default() };
    Node::new(node, Instant::new(now_ns()))
}

/// Opens the channel of a topic, or creates it; a Q-channel comes with its data channel.
pub fn create(node: &mut Node, topic: &str, now: Instant, port: &mut dyn Port) {
    let format = Format { name: "bytes".into(), size: 0, align: 1, fields: Vec::new() };
    let spec = Spec { types: vec![EventType { format }], ..Spec::default() };
    let data = ChannelId { plane: Plane::Data, ..channel(topic) };
    if !node.is_open(&data) && node.open(&data, now).is_err() {
        node.create(&data, spec, now).expect("a channel");
    }
}

/// A sink that is called.
pub fn join(node: &mut Node, topic: &str, now: Instant, port: &mut dyn Port) -> SinkId {
    create(node, topic, now, port);
    let spec = SinkSpec { delivery: Delivery::Call, ..SinkSpec::default() };
    node.sink_subscribe(&channel(topic), spec, now).expect("a sink")
}

pub fn source(node: &mut Node, topic: &str, now: Instant, port: &mut dyn Port) -> SourceId {
    create(node, topic, now, port);
    node.source_subscribe(&channel(topic), SourceSpec::default(), now).expect("a source")
}

impl Ours {
    pub fn open(rival: &str, net: &str, host: usize) -> Ours {
        let config = config(rival, net, host);
        let told = Arc::new(Told::default());
        let inside = Echo { node: node(&config, host), back: None };
        let link = Link::open(&config, inside, Arc::clone(&told) as Arc<dyn Listener>, || {}).expect("a link");
        Ours { link: Arc::new(link), told, calls: host > 0 }
    }

    /// Calls the node.
    pub fn with<R>(&self, act: impl FnOnce(&mut Node, Instant) -> R) -> R {
        self.link.with(|echo, now, port| act(&mut echo.node, now, port))
    }

    /// Knows what there is on the other side.
    pub fn ready(&self) {
        until(|| !self.calls || self.link.with(|echo, _, _| echo.node.directory().hosts().count()) > 1);
    }
}

impl Peer for Ours {
    fn subscribe(&self, topic: &'static str, each: Each) {
        self.ready();
        self.link.with(|echo, now, port| {
            let sink = join(&mut echo.node, topic, now, port);
            self.told.0.lock().expect("no panic").insert(sink, each);
        });
    }

    fn publish(&self, topic: &'static str) -> Publish {
        self.ready();
        let link = Arc::clone(&self.link);
        let from = link.with(|echo, now, port| source(&mut echo.node, topic, now, port));
        Box::new(move |bytes| {
            let event = Submission { payload: bytes, ..Submission::default() };
            link.with(|echo, now, port| echo.node.submit(from, &event, now)).expect("submitted");
        })
    }

    fn echo(&self) {
        self.link.with(|echo, now, port| {
            join(&mut echo.node, "ping", now, port);
            echo.back = Some(source(&mut echo.node, "pong", now, port));
        });
    }

    fn wait_for(&self, topic: &'static str, sinks: usize) {
        let id = channel(topic);
        until(|| {
            self.link.with(|echo, _, _| {
                let view = echo.node.directory().channel(&id);
                view.is_some_and(|view| view.sinks >= sinks)
            })
        });
    }
}

/// Answers where a resource manager does: behind the lock, before the next frame is looked at.
pub struct Echo {
    node: Node,
    back: Option<SourceId>,
}

/// A port that notes whether an event came.
struct Catch<'a> {
    port: &'a mut dyn Port,
    length: Option<usize>,
}

impl Inside for Echo {
    fn call<R>(&mut self, now: Instant, port: &mut dyn Port, act: impl FnOnce(&mut Node, &mut dyn Port) -> R) -> R {
        let Some(back) = self.back else { return act(&mut self.node, port) };
        let mut catch = Catch { port, length: None };
        let result = act(&mut self.node, &mut catch);
        if let Some(length) = catch.length {
            let event = Submission { payload: &[0; 1024][..length], ..Submission::default() };
            self.node.submit(back, &event, now).expect("submitted");
        }
        result
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.node.next_wakeup()
    }

    fn wake(&mut self, now: Instant, port: &mut dyn Port) {
        self.node.wake(now, port);
    }
}

impl Port for Catch<'_> {
    fn send(&mut self, to: Destination<'_>, lane: Lane, frame: &[u8]) {
        self.port.send(to, lane, frame);
    }

    fn listen(&mut self, channel: &ChannelId) {
        self.port.listen(channel);
    }

    fn ignore(&mut self, channel: &ChannelId) {
        self.port.ignore(channel);
    }

    fn deliver(&mut self, _sink: SinkId, event: &Event<'_>) {
        self.length = Some(event.payload.len());
    }

    fn ready(&mut self, _sink: SinkId) {}

    fn writable(&mut self, _source: SourceId) {}

    fn notice(&mut self, _notice: Notice) {}
}
