//! What runs on a made-up host, and what it can do there.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use qfabric_channel::{Destination, Event, Lane, Node, Notice, Port, SinkId, SourceId};
use qfabric_host::manager::{Manager, ManagerPort, Member, MemberPort, Outcome, Whom};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, Reading};
use qfabric_types::{AppId, Instant, Nanos};

/// An event at one of the application's sinks.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// At which sink.
    pub sink: SinkId,
    /// Where.
    pub channel: ChannelId,
    /// The source's host.
    pub host: Name,
    /// The source's number there.
    pub source: SourceId,
    /// Its number among the source's.
    pub number: u64,
    /// Its type's number.
    pub event_type: u16,
    /// 0 to 7.
    pub priority: u8,
    /// When it was submitted, by this host's clock.
    pub sent: Instant,
    /// Its attributes.
    pub attributes: Vec<(String, i64)>,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// What an application of a made-up host does. Times are of the host's own clock.
pub trait App {
    /// The host starts.
    fn start(&mut self, _here: &mut Here<'_>) {}
    /// An event arrived.
    fn event(&mut self, _event: &Arrived, _here: &mut Here<'_>) {}
    /// A time it asked for ([`Here::after`]) has come.
    fn timer(&mut self, _tag: u64, _here: &mut Here<'_>) {}
    /// Its manager gives it so much of a resource.
    fn applied(&mut self, _application: AppId, _attribute: AttributeId, _amount: i64, _here: &mut Here<'_>) {}
    /// A request to other hosts ended.
    fn answered(&mut self, _request: u64, _outcome: &Outcome, _here: &mut Here<'_>) {}
    /// The node said something.
    fn noticed(&mut self, _notice: &Notice, _here: &mut Here<'_>) {}
}

/// A host without an application.
#[derive(Debug)]
pub struct Idle;

impl App for Idle {}

/// A frame on its way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub to: To,
    pub lane: Lane,
    pub frame: Rc<[u8]>,
}

/// Whom a frame is for.
#[derive(Debug)]
pub(super) enum To {
    Everyone,
    Channel(ChannelId),
    Host(Name),
}

/// What happened and waits for the application.
#[derive(Debug)]
pub(super) enum Happened {
    Event(Arrived),
    Applied(AppId, AttributeId, i64),
    Answered(u64, Outcome),
    Notice(Notice),
}

/// The port of one made-up host: collects what is to be done.
#[derive(Debug, Default)]
pub struct HostPort {
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) listens: BTreeSet<ChannelId>,
    pub(super) happened: VecDeque<Happened>,
    pub(super) timers: Vec<(Instant, u64)>,
    pub(super) writable: Vec<SourceId>,
}

impl Port for HostPort {
    fn send(&mut self, to: Destination<'_>, lane: Lane, frame: &[u8]) {
        let to = match to {
            Destination::Everyone => To::Everyone,
            Destination::Channel(channel) => To::Channel(channel.clone()),
            Destination::Host(host) => To::Host(host.clone()),
        };
        self.outgoing.push(Outgoing { to, lane, frame: frame.into() });
    }

    fn listen(&mut self, channel: &ChannelId) {
        self.listens.insert(channel.clone());
    }

    fn ignore(&mut self, channel: &ChannelId) {
        self.listens.remove(channel);
    }

    fn deliver(&mut self, sink: SinkId, event: &Event<'_>) {
        self.happened.push_back(Happened::Event(Arrived {
            sink,
            channel: event.channel.clone(),
            host: event.host.clone(),
            source: event.source,
            number: event.number,
            event_type: event.event_type,
            priority: event.priority,
            sent: event.sent,
            attributes: event.attributes.iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            payload: event.payload.to_vec(),
        }));
    }

    fn ready(&mut self, _sink: SinkId) {}

    fn writable(&mut self, source: SourceId) {
        self.writable.push(source);
    }

    fn notice(&mut self, notice: Notice) {
        self.happened.push_back(Happened::Notice(notice));
    }
}

impl MemberPort for HostPort {
    fn apply(&mut self, application: AppId, attribute: AttributeId, amount: i64) {
        self.happened.push_back(Happened::Applied(application, attribute, amount));
    }

    fn answered(&mut self, request: u64, outcome: &Outcome) {
        self.happened.push_back(Happened::Answered(request, outcome.clone()));
    }
}

/// An application's host, while it runs.
pub struct Here<'a> {
    /// Now, by the host's clock.
    pub now: Instant,
    /// Now, by nobody's clock: for who measures, not for who plays.
    pub truth: Instant,
    /// Its member.
    pub member: &'a mut Member,
    pub(super) port: &'a mut HostPort,
}

impl Here<'_> {
    /// Calls the node.
    pub fn with<R>(&mut self, act: impl FnOnce(&mut Node, Instant) -> R) -> R {
        let now = self.now;
        self.member.with(now, self.port, |node, port| act(node, now, port))
    }

    /// Calls the manager.
    pub fn manager<R>(&mut self, act: impl FnOnce(&mut Manager, Instant, &mut dyn ManagerPort) -> R) -> R {
        let now = self.now;
        self.member.manager(now, self.port, |manager, port| act(manager, now, port))
    }

    /// A reading of the host's monitor.
    pub fn report(&mut self, reading: &Reading, name: &str, channel: Option<&ChannelId>, to: &Whom) {
        self.member.reading((reading, name), channel, to, self.now, self.port);
    }

    /// [`App::timer`] is called after that time.
    pub fn after(&mut self, time: Nanos, tag: u64) {
        self.at(self.now + time, tag);
    }

    /// [`App::timer`] is called at that time.
    pub fn at(&mut self, at: Instant, tag: u64) {
        self.port.timers.push((at, tag));
    }
}
