//! A Q-filter whose parameter is set by events of the Q-channel: measures the time from a reading's submission on
//! another host, and from its frame in the receive thread, until the parameter has changed.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use qfabric_channel::{Binding, Direction, FilterId, FilterSpec, Frame, Node, Output, Submission};
use qfabric_link::{Link, NodeOwner};
use qfabric_types::monitor::{AttributeId, Cause, Reading, ReadingEvent, Unit};
use qfabric_types::{AppId, Instant, Nanos};

use super::ours::{Quiet, channel, config, create, node, source};
use super::play::{forever, note, note_inside, say};
use super::{now_ns, until};

/// The text does nothing with its parameter, because only the change is measured.
const TEXT: &str = "return get_attribute(least) >= 0;";

/// Reads the parameter after every call.
struct Valve {
    node: Node,
    filter: Option<FilterId>,
    least: i64,
}

impl NodeOwner for Valve {
    fn call<R>(&mut self, now: Instant, act: impl FnOnce(&mut Node) -> R) -> R {
        let result = act(&mut self.node);
        let least = self.filter.as_ref().and_then(|id| self.node.parameter(id, "least").ok());
        if let Some(least) = least.filter(|least| *least != self.least) {
            // The value is the time at which the reading was submitted.
            let changed = now_ns();
            self.least = least;
            note(changed.saturating_sub(least as u64) as f64 / 1e3);
            note_inside((changed - now.get()) as f64 / 1e3);
        }
        result
    }

    fn poll(&mut self, _now: Instant) -> Option<Output> {
        self.node.poll()
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

/// The host with the filter.
pub(crate) fn valve(rival: &str, net: &str) {
    let config = config(rival, net, 0);
    let owner = Valve { node: node(&config, 0), filter: None, least: 0 };
    let link = Link::open(&config, owner, Arc::new(Quiet), || {}).expect("a link");
    link.with(|valve, now| {
        create(&mut valve.node, "bulk", now);
        let id = FilterId { channel: channel("bulk"), direction: Direction::Out, name: "q".parse().expect("a name") };
        let parameters = vec![("least".parse().expect("a key"), 0)];
        let filter = FilterSpec { id: id.clone(), sink: None, types: vec![], text: TEXT.into(), parameters };
        valve.node.install(&filter).expect("it compiles");
        let (parameter, channel) = ("least".parse().expect("a key"), channel("control"));
        let (event_type, field) = ("reading".into(), "value".into());
        let binding = Binding { filter: id.clone(), parameter, channel, event_type, field };
        valve.node.bind(&binding, now).expect("bound");
        valve.filter = Some(id);
    });
    say("ready");
    forever()
}

/// The host whose monitor submits readings, five hundred a second; it prints when it has finished.
pub(crate) fn turner(rival: &str, net: &str, readings: usize) {
    let config = config(rival, net, 1);
    let link = Link::open(&config, node(&config, 1), Arc::new(Quiet), || {}).expect("a link");
    until(|| link.with(|node, _| node.directory().channel(&channel("bulk")).is_some()));
    let from = link.with(|node, now| source(node, "control", now));
    thread::sleep(Duration::from_millis(700));
    for _ in 0..readings {
        thread::sleep(Duration::from_millis(2));
        let at = Instant::new(now_ns());
        let bytes = reading(at);
        let event = Submission { payload: &bytes, ..Submission::default() };
        link.with(|node, now| node.submit(from, &event, now)).expect("submitted");
    }
    say("done");
    forever()
}

fn reading(at: Instant) -> [u8; ReadingEvent::SIZE] {
    let name = "cpu.run_queue";
    let reading = Reading {
        attribute: AttributeId::of(name),
        application: AppId(0),
        value: at.get() as i64,
        at,
        over: Nanos::ZERO,
        cause: Cause::Poll,
        unit: Unit::Count,
    };
    ReadingEvent::encode(&reading, name)
}
