//! What runs on a made-up host, and what it can do there.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use qfabric_channel::{Event, Lane, Node, Notice, Output, SinkId, SourceId, Taken, To};
use qfabric_host::manager::{Effect, Manager, Member, MemberOutput, Outcome, Recipient};
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

impl Arrived {
    fn new(sink: SinkId, event: &Event<'_>) -> Arrived {
        Arrived {
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
        }
    }
}

/// What an application of a made-up host does. Times are of the host's own clock.
pub trait App {
    /// The host starts.
    fn start(&mut self, _here: &mut Here<'_>) {}
    /// One of its sinks has events to take.
    fn ready(&mut self, sink: SinkId, here: &mut Here<'_>) {
        here.take(sink).iter().for_each(|event| self.event(event, here));
    }
    /// An event was taken from one of its sinks.
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

/// What happened and waits for the application.
#[derive(Debug)]
pub(super) enum Happened {
    Ready(SinkId),
    Applied(AppId, AttributeId, i64),
    Answered(u64, Outcome),
    Notice(Notice),
}

/// What is to be done for one made-up host.
#[derive(Debug, Default)]
pub struct Todo {
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) listens: BTreeSet<ChannelId>,
    pub(super) happened: VecDeque<Happened>,
    pub(super) timers: Vec<(Instant, u64)>,
}

impl Todo {
    /// Asks a member for what it wants done.
    fn ask(&mut self, member: &mut Member) {
        while let Some(output) = member.poll() {
            match output {
                MemberOutput::Node(Output::Send(to, lane, frame)) => {
                    self.outgoing.push(Outgoing { to, lane, frame: member.frame(frame).into() });
                }
                MemberOutput::Node(Output::Listen(channel)) => _ = self.listens.insert(channel),
                MemberOutput::Node(Output::Ignore(channel)) => _ = self.listens.remove(&channel),
                MemberOutput::Node(Output::Ready(sink)) => self.happened.push_back(Happened::Ready(sink)),
                // Applications here do not wait for slow sinks.
                MemberOutput::Node(Output::Writable(_)) => {}
                MemberOutput::Node(Output::Notice(notice)) => self.happened.push_back(Happened::Notice(notice)),
                MemberOutput::Effect(Effect::Apply(application, attribute, amount)) => {
                    self.happened.push_back(Happened::Applied(application, attribute, amount));
                }
                MemberOutput::Effect(Effect::Answered(request, outcome)) => {
                    self.happened.push_back(Happened::Answered(request, outcome));
                }
                // No broker keeps the books here.
                MemberOutput::Effect(Effect::Keep { .. } | Effect::LetGo { .. } | Effect::Taken { .. }) => {}
            }
        }
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
    pub(super) todo: &'a mut Todo,
}

impl Here<'_> {
    /// Calls the node.
    pub fn with<R>(&mut self, act: impl FnOnce(&mut Node, Instant) -> R) -> R {
        let now = self.now;
        self.call(|member| member.with(now, |node| act(node, now)))
    }

    /// Calls the manager.
    pub fn manager<R>(&mut self, act: impl FnOnce(&mut Manager, Instant) -> R) -> R {
        let now = self.now;
        self.call(|member| member.manager(now, |manager| act(manager, now)))
    }

    /// A reading of the host's monitor.
    pub fn report(&mut self, reading: &Reading, name: &str, channel: Option<&ChannelId>, to: &Recipient) {
        let now = self.now;
        self.call(|member| member.reading((reading, name), channel, to, now));
    }

    /// All events that wait for a sink.
    pub fn take(&mut self, sink: SinkId) -> Vec<Arrived> {
        self.with(|node, now| {
            let (mut taken, mut all) = (Taken::default(), Vec::new());
            while node.take(sink, &mut taken, now).unwrap_or(false) {
                all.extend(taken.event().map(|event| Arrived::new(sink, &event)));
            }
            all
        })
    }

    /// Calls the member, and asks it for what it wants done.
    pub fn call<R>(&mut self, act: impl FnOnce(&mut Member) -> R) -> R {
        let result = act(self.member);
        self.todo.ask(self.member);
        result
    }

    /// [`App::timer`] is called after that time.
    pub fn after(&mut self, time: Nanos, tag: u64) {
        self.at(self.now + time, tag);
    }

    /// [`App::timer`] is called at that time.
    pub fn at(&mut self, at: Instant, tag: u64) {
        self.todo.timers.push((at, tag));
    }
}
