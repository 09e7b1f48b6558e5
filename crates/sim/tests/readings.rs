//! Readings are sent only to hosts whose controllers request them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use qfabric_channel::{Attributes, EventType, SinkSpec, Spec};
use qfabric_host::manager::{Change, ChangeKind, Controller, Decisions, Interest, Recipient, Topic, View};
use qfabric_sim::fabric::{App, Fabric, HostContext, HostId, ReceivedEvent, Settings};
use qfabric_types::channel::{ChannelId, Plane};
use qfabric_types::format::{Field, Format, Kind, Scalar};
use qfabric_types::monitor::{AttributeId, Cause, HOST, Reading, Unit};
use qfabric_types::{Instant, Nanos};

const QUEUE: &str = "cpu.run_queue";

/// Counts events at the application's own sinks.
#[derive(Default)]
struct Counts(Rc<RefCell<u32>>);

impl App for Counts {
    fn event(&mut self, _: &ReceivedEvent, _: &mut HostContext<'_>) {
        *self.0.borrow_mut() += 1;
    }
}

/// Requests readings and counts them.
struct Wants(Arc<AtomicU32>);

impl Controller for Wants {
    fn name(&self) -> &str {
        "wants"
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::on(&quality(), Topic::Reading(AttributeId::of(QUEUE)))]
    }

    fn changed(&mut self, change: &Change, _: &View<'_>, _: &mut Decisions) {
        self.0.fetch_add(u32::from(matches!(change.what, ChangeKind::Reading(_))), Ordering::Relaxed);
    }
}

fn quality() -> ChannelId {
    ChannelId { plane: Plane::Quality, name: "film".parse().unwrap() }
}

fn spec() -> Spec {
    let number = Field { name: "number".into(), offset: 0, kind: Kind::Scalar(Scalar::U64), dims: Vec::new() };
    let format = Format { name: "frame".into(), size: 8, align: 8, fields: vec![number] };
    Spec { types: vec![EventType { format }], ..Spec::default() }
}

/// Hosts that share a channel.
struct Hosts {
    fabric: Fabric,
    now: Instant,
}

impl Hosts {
    fn new(apps: Vec<Counts>) -> Hosts {
        let mut fabric = Fabric::new(Settings::default());
        for (number, app) in apps.into_iter().enumerate() {
            fabric.add(&format!("h{number}"), Box::new(app));
        }
        let mut hosts = Hosts { fabric, now: Instant::ZERO };
        hosts.pass();
        let film = ChannelId::data("film".parse().unwrap());
        hosts.fabric.on(0, |here| here.with(|node, now| node.create(&film, spec(), now))).unwrap();
        hosts.pass();
        for host in 1..hosts.fabric.len() {
            hosts.fabric.on(host, |here| here.with(|node, now| node.open(&film, now))).unwrap();
        }
        hosts.pass();
        hosts
    }

    fn pass(&mut self) {
        self.now = self.now + Nanos::from_millis(3_000);
        self.fabric.run_until(self.now);
    }

    fn reads(&mut self) {
        self.reads_of(QUEUE);
    }

    /// Reports a reading of the first host's monitor and lets it arrive.
    fn reads_of(&mut self, name: &str) {
        self.fabric.on(0, |here| {
            let (attribute, over, at) = (AttributeId::of(name), Nanos::ZERO, here.now);
            let (cause, unit) = (Cause::Poll, Unit::Count);
            let reading = Reading { attribute, application: HOST, value: 5, at, over, cause, unit };
            here.report(&reading, name, None, &Recipient::All);
        });
        self.pass();
    }

    /// Number of inputs of the host's manager.
    fn inputs(&self, host: HostId) -> u64 {
        self.fabric.member_of(host).managed().counts().inputs
    }
}

#[test]
fn a_reading_goes_only_to_hosts_whose_controllers_request_it() {
    let mut hosts = Hosts::new((0..3).map(|_| Counts::default()).collect());
    let received = Arc::new(AtomicU32::new(0));
    let wants = Wants(received.clone());
    let number = hosts.fabric.on(1, |here| here.manager(|manager, _| manager.add(Box::new(wants))));
    hosts.pass();
    let before = hosts.inputs(2);
    hosts.reads();
    assert_eq!((received.load(Ordering::Relaxed), hosts.inputs(2) - before), (1, 0));
    hosts.fabric.on(1, |here| here.manager(|manager, _| drop(manager.remove(number))));
    hosts.pass();
    let before = hosts.inputs(1);
    hosts.reads();
    assert_eq!(hosts.inputs(1) - before, 0, "no controller requests the reading any more");
}

#[test]
fn an_application_that_listens_on_a_q_channel_gets_the_readings_of_hosts() {
    let seen = Rc::new(RefCell::new(0));
    let mut hosts = Hosts::new(vec![Counts::default(), Counts(seen.clone())]);
    let sink = SinkSpec::default();
    let quality = quality();
    hosts.fabric.on(1, |here| here.with(|node, now| node.sink_subscribe(&quality, sink, now))).unwrap();
    hosts.pass();
    hosts.reads();
    assert_eq!(*seen.borrow(), 1);
}

#[test]
fn readings_of_an_application_go_to_sinks_that_name_the_attribute() {
    let (plain, naming) = (Rc::new(RefCell::new(0)), Rc::new(RefCell::new(0)));
    let mut hosts = Hosts::new(vec![Counts::default(), Counts(plain.clone()), Counts(naming.clone())]);
    let key = AttributeId::of("app.position").key().parse().unwrap();
    let attributes = [Attributes::default(), [(key, 1)].into_iter().collect()];
    for (host, attributes) in [1, 2].into_iter().zip(attributes) {
        let sink = SinkSpec { attributes, ..SinkSpec::default() };
        hosts.fabric.on(host, |here| here.with(|node, now| node.sink_subscribe(&quality(), sink, now))).unwrap();
    }
    hosts.pass();
    hosts.reads_of("app.position");
    assert_eq!((*plain.borrow(), *naming.borrow()), (0, 1));
    hosts.reads_of("app.misses");
    hosts.reads();
    assert_eq!((*plain.borrow(), *naming.borrow()), (1, 2), "other readings of applications go to neither");
}
