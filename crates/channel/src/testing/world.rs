//! The interface between tests and a set of hosts with a network.

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use crate::{Event, Limits, Node, Notice, SinkId, SourceId, Taken};

/// The test takes events at once for sinks with this capacity; other sinks wait until the test takes their events.
pub const EAGER: u32 = Limits::QUEUE as u32;

/// An event that was taken from the queue of a sink with the capacity [`EAGER`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub sink: SinkId,
    pub host: Name,
    pub source: SourceId,
    pub number: u64,
    pub event_type: u16,
    pub priority: u8,
    pub attributes: Vec<(String, i64)>,
    pub payload: Vec<u8>,
}

impl Delivered {
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

    /// Takes all events of a ready sink if its capacity is [`EAGER`].
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

/// Hosts with a node each, and the network between them, simulated or real.
pub trait World {
    /// All hosts, killed ones included. At least four.
    fn hosts(&self) -> Vec<Name>;

    /// Calls `act` with a host's node and the time.
    fn with<R>(&mut self, host: &Name, act: impl FnOnce(&mut Node, Instant) -> R) -> R;

    /// Calls `act` with the nodes of two hosts and their index (0, 1), such that neither node receives frames of the
    /// other between the calls. A network whose delays follow the machine's clock has to ensure this.
    fn at_once(&mut self, hosts: [&Name; 2], mut act: impl FnMut(usize, &mut Node, Instant) + Send) {
        for (number, host) in hosts.into_iter().enumerate() {
            self.with(host, |node, now| act(number, node, now));
        }
    }

    /// Lets time pass; frames travel, nodes wake.
    fn run_for(&mut self, time: Nanos);

    /// Stops all traffic between these hosts; they have to detect this themselves.
    fn cut(&mut self, one: &Name, other: &Name);

    /// Lets traffic pass between these hosts again.
    fn heal(&mut self, one: &Name, other: &Name);

    /// The host's process ends without a message to the others.
    fn kill(&mut self, host: &Name);

    /// The host starts again, with a new incarnation.
    fn start(&mut self, host: &Name);

    /// The events that a host's sinks with the capacity [`EAGER`] have taken since the last call.
    fn delivered(&mut self, host: &Name) -> Vec<Delivered>;

    /// A host's notices since the last call.
    fn notices(&mut self, host: &Name) -> Vec<Notice>;

    /// Waits until changes have reached all hosts.
    fn settle(&mut self) {
        self.run_for(Nanos::from_millis(700));
    }

    /// Waits until a silent host is reported as gone.
    fn detect(&mut self) {
        self.run_for(Nanos::from_millis(2_000));
    }

    /// Waits until the accounts are complete: every sent event is delivered or known to be lost.
    fn quiet(&mut self) {
        self.run_for(Nanos::from_millis(15_000));
    }
}
