//! A link that leaves the network and joins it again, like a cable that is cut and repaired.

mod common;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant as Moment};

use common::{PATIENCE, Site};
use qfabric_channel::{
    Config as NodeConfig, EventType, Incarnation, Node, Notice, Output, SinkId, SinkSpec, SourceId, SourceSpec, Spec,
    Submission, Taken,
};
use qfabric_ecode::parse_formats;
use qfabric_link::{Config, EngineKind, Link, Listener};
use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Plane};

#[derive(Default)]
struct Recorder {
    notices: Mutex<Vec<Notice>>,
}

impl Listener for Recorder {
    fn on_output(&self, output: Output, _is_arrival: bool) {
        if let Output::Notice(notice) = output {
            self.notices.lock().unwrap().push(notice);
        }
    }
}

struct Host {
    link: Link,
    recorder: Arc<Recorder>,
    members: Option<(SourceId, SinkId)>,
}

fn video() -> ChannelId {
    ChannelId { plane: Plane::Data, name: "video".parse().unwrap() }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Moment::now();
    while !condition() {
        assert!(since.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

impl Host {
    fn new(config: &Config) -> Host {
        let (recorder, node) =
            (Arc::<Recorder>::default(), NodeConfig::new(config.host.clone(), Incarnation::new(1, 1)));
        let link = Link::open(config, Node::new(node, Instant::ZERO), recorder.clone(), || {}).unwrap();
        Host { link, recorder, members: None }
    }

    fn create(&self) {
        let types = parse_formats("struct one { int a; };").unwrap();
        let spec = Spec { types: types.into_iter().map(|format| EventType { format }).collect(), ..Spec::default() };
        self.link.with(|node, now| node.create(&video(), spec, now)).unwrap();
    }

    /// Adds a source and a sink on the channel.
    fn join(&mut self) {
        eventually("the channel is known", || self.link.with(|node, now| node.open(&video(), now).is_ok()));
        let members = self.link.with(|node, now| {
            let sink = node.sink_subscribe(&video(), SinkSpec::default(), now).unwrap();
            (node.source_subscribe(&video(), SourceSpec::default(), now).unwrap(), sink)
        });
        self.members = Some(members);
    }

    /// Returns the number of remote sinks that the event was sent to.
    fn submit(&self) -> u32 {
        let submission = Submission { payload: &[7; 4], ..Submission::default() };
        let (source, _) = self.members.unwrap();
        self.link.with(|node, now| node.submit(source, &submission, now)).unwrap().remote
    }

    /// Takes an event if there is one.
    fn takes(&self) -> bool {
        let (_, sink) = self.members.unwrap();
        self.link.with(|node, now| node.take(sink, &mut Taken::default(), now)).unwrap()
    }

    fn knows(&self) -> usize {
        self.link.with(|node, _| node.directory().hosts().count())
    }

    fn is_told(&self, of: &Notice) -> usize {
        self.recorder.notices.lock().unwrap().iter().filter(|notice| *notice == of).count()
    }
}

/// Waits until an event of each host arrives at the other.
fn flows(hosts: &[Host; 2]) {
    for (from, to) in [(0, 1), (1, 0)] {
        while hosts[to].takes() {}
        eventually("events arrive", || {
            hosts[from].submit();
            hosts[to].takes()
        });
    }
}

fn come_and_go(kind: EngineKind) {
    let site = Site::new(kind);
    let configs = [1, 2].map(|host| site.config(host, &[1, 2]));
    let mut hosts = configs.each_ref().map(Host::new);
    eventually("they meet", || hosts.iter().all(|host| host.knows() == 2));
    hosts[0].create();
    hosts.iter_mut().for_each(Host::join);
    flows(&hosts);
    let gone = |host: usize| Notice::HostVanished(configs[host].host.clone());
    for round in 1..=3 {
        for (one, other) in [(0, 1), (1, 0)] {
            hosts[one].link.reopen(&configs[one], || {}).unwrap();
            eventually("the others see that it had left", || hosts[other].is_told(&gone(one)) == 2 * round - 1 + one);
            assert_eq!(hosts[one].is_told(&gone(other)), 2 * round - 1 + one);
            flows(&hosts);
        }
    }
    let sent = hosts[0].link.count(|counters| counters.sent.iter().map(|lane| lane.load(Ordering::Relaxed)).sum());
    assert!(sent > 6, "earlier engines' counts stay: {sent}");

    let mut taken = configs[0].clone();
    taken.listen = configs[1].listen.clone();
    assert!(hosts[0].link.reopen(&taken, || {}).is_err() && !hosts[0].link.is_open());
    assert_eq!((hosts[0].submit(), hosts[0].knows()), (0, 1), "alone, and alive");
    hosts[0].link.reopen(&configs[0], || {}).unwrap();
    assert!(hosts[0].link.is_open());
    flows(&hosts);
}

#[test]
fn members_stay_while_their_host_leaves_the_network_and_comes_back_over_zenoh() {
    come_and_go(EngineKind::Zenoh);
}

#[test]
fn members_stay_while_their_host_leaves_the_network_and_comes_back_over_plain_sockets() {
    come_and_go(EngineKind::Plain);
}
