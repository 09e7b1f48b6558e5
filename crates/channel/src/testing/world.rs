//! Hosts and the network between them, as a test sees them.

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use crate::{Event, Limits, Node, Notice, SinkId, SourceId, Taken};

/// Sinks with a queue of this size take each event as it comes; the others wait until they are told to.
pub const EAGER: u32 = Limits::QUEUE as u32;

/// An event that was taken from the queue of a sink with room for [`EAGER`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The sink.
    pub sink: SinkId,
    /// The source's host.
    pub host: Name,
    /// The source.
    pub source: SourceId,
    /// The event's number.
    pub number: u64,
    /// Its type.
    pub event_type: u16,
    /// Its priority.
    pub priority: u8,
    /// Its attributes.
    pub attributes: Vec<(String, i64)>,
    /// Its bytes.
    pub payload: Vec<u8>,
}

impl Delivered {
    /// A copy of an event for a sink.
    pub fn new(sink: SinkId, event: &Event<'_>) -> Delivered {
        Delivered {
            sink,
            host: event.host.clone(),
            source: event.source,
            number: event.number,
            event_type: event.event_type,
            priority: event.priority,
            attributes: event.attributes.iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            payload: event.payload.to_vec(),
        }
    }

    /// A sink has become ready: what it takes, if it is one with room for [`EAGER`].
    pub fn take_all(node: &mut Node, sink: SinkId, now: Instant) -> Vec<Delivered> {
        let own = node.directory().host(node.host()).into_iter().flat_map(|record| record.channels.values());
        let eager = own.filter_map(|held| held.sinks.get(&sink)).any(|info| info.capacity == EAGER);
        let (mut taken, mut all) = (Taken::default(), Vec::new());
        while eager && node.take(sink, &mut taken, now).unwrap_or(false) {
            all.extend(taken.event().map(|event| Delivered::new(sink, &event)));
        }
        all
    }
}

/// Hosts with a node each, and the network between them: made up, or real.
pub trait World {
    /// All hosts, those that were killed too. At least four.
    fn hosts(&self) -> Vec<Name>;

    /// Does something with a host's node.
    fn with<R>(&mut self, host: &Name, act: impl FnOnce(&mut Node, Instant) -> R) -> R;

    /// Does something with the nodes of two hosts, told which it is (0, 1), and neither hears of the other in between. A
    /// network whose delays run by the clock of the machine has to see to that.
    fn at_once(&mut self, hosts: [&Name; 2], mut act: impl FnMut(usize, &mut Node, Instant) + Send) {
        for (number, host) in hosts.into_iter().enumerate() {
            self.with(host, |node, now| act(number, node, now));
        }
    }

    /// Lets time pass; frames travel, nodes wake.
    fn run_for(&mut self, time: Nanos);

    /// From now on nothing goes between these hosts; they find out by themselves.
    fn cut(&mut self, one: &Name, other: &Name);

    /// It goes again.
    fn heal(&mut self, one: &Name, other: &Name);

    /// The host's process ends without a word.
    fn kill(&mut self, host: &Name);

    /// A new one starts on the host.
    fn start(&mut self, host: &Name);

    /// What a host's sinks with room for [`EAGER`] have taken since the last look.
    fn delivered(&mut self, host: &Name) -> Vec<Delivered>;

    /// What a host was told since the last look.
    fn notices(&mut self, host: &Name) -> Vec<Notice>;

    /// Until what was said is known to all.
    fn settle(&mut self) {
        self.run_for(Nanos::from_millis(700));
    }

    /// Until a silent host is known to be one.
    fn detect(&mut self) {
        self.run_for(Nanos::from_millis(2_000));
    }

    /// Until the books are closed: everything sent is delivered, or known to be lost.
    fn quiet(&mut self) {
        self.run_for(Nanos::from_millis(15_000));
    }
}
