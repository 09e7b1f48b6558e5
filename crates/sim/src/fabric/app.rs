//! The interface between a simulated host and its application.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use qfabric_channel::{Destination, Event, Lane, Node, Notice, Output, SinkId, SourceId, Taken};
use qfabric_host::manager::{Effect, Manager, Member, MemberOutput, Outcome, Recipient};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, Reading};
use qfabric_types::{AppId, Instant, Nanos};

/// An event that an application took from one of its sinks.
#[derive(Clone, Debug)]
pub struct ReceivedEvent {
    pub sink: SinkId,
    pub channel: ChannelId,
    /// Host of the source.
    pub host: Name,
    /// The source's number on its host.
    pub source: SourceId,
    /// Number of the event among the events of its source.
    pub number: u64,
    /// Index of the event's type.
    pub event_type: u16,
    /// 0 to 7.
    pub priority: u8,
    /// Time of submission, by the clock of the receiving host.
    pub sent: Instant,
    pub attributes: Vec<(String, i64)>,
    pub payload: Vec<u8>,
}

impl ReceivedEvent {
    fn new(sink: SinkId, event: &Event<'_>) -> ReceivedEvent {
        ReceivedEvent {
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

/// An application of a simulated host. All times are of the host's own clock.
pub trait App {
    /// The host starts.
    fn start(&mut self, _here: &mut HostContext<'_>) {}
    /// A sink of the application has events.
    fn ready(&mut self, sink: SinkId, here: &mut HostContext<'_>) {
        here.take(sink).iter().for_each(|event| self.event(event, here));
    }
    /// An event was taken from a sink.
    fn event(&mut self, _event: &ReceivedEvent, _here: &mut HostContext<'_>) {}
    /// A timer set with [`HostContext::after`] or [`HostContext::at`] has expired.
    fn timer(&mut self, _tag: u64, _here: &mut HostContext<'_>) {}
    /// The manager applies an amount of a resource to the application.
    fn applied(&mut self, _application: AppId, _attribute: AttributeId, _amount: i64, _here: &mut HostContext<'_>) {}
    /// A request to other hosts has ended.
    fn answered(&mut self, _request: u64, _outcome: &Outcome, _here: &mut HostContext<'_>) {}
    /// The node sends a notice.
    fn noticed(&mut self, _notice: &Notice, _here: &mut HostContext<'_>) {}
}

/// An application that does nothing.
#[derive(Debug)]
pub struct Idle;

impl App for Idle {}

/// A frame that is to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub to: Destination,
    pub lane: Lane,
    pub frame: Rc<[u8]>,
}

/// A notification that waits for the application.
#[derive(Debug)]
pub(super) enum Notification {
    Ready(SinkId),
    Applied(AppId, AttributeId, i64),
    Answered(u64, Outcome),
    Notice(Notice),
}

/// The pending outputs of one simulated host.
#[derive(Debug, Default)]
pub struct PendingOutputs {
    pub(super) outgoing: Vec<Outgoing>,
    pub(super) listens: BTreeSet<ChannelId>,
    pub(super) notifications: VecDeque<Notification>,
    pub(super) timers: Vec<(Instant, u64)>,
}

impl PendingOutputs {
    /// Takes all outputs of a member.
    fn take_outputs(&mut self, member: &mut Member) {
        while let Some(output) = member.poll() {
            match output {
                MemberOutput::Node(Output::Send(to, lane, frame)) => {
                    self.outgoing.push(Outgoing { to, lane, frame: member.frame(frame).into() });
                }
                MemberOutput::Node(Output::Listen(channel)) => _ = self.listens.insert(channel),
                MemberOutput::Node(Output::Ignore(channel)) => _ = self.listens.remove(&channel),
                MemberOutput::Node(Output::Ready(sink)) => self.notifications.push_back(Notification::Ready(sink)),
                // Simulated applications do not wait for slow sinks, and simulated hosts take no private messages.
                MemberOutput::Node(Output::Writable(_) | Output::Private(..)) => {}
                MemberOutput::Node(Output::Notice(notice)) => {
                    self.notifications.push_back(Notification::Notice(notice))
                }
                MemberOutput::Effect(Effect::Apply(application, attribute, amount)) => {
                    self.notifications.push_back(Notification::Applied(application, attribute, amount));
                }
                MemberOutput::Effect(Effect::Answered(request, outcome)) => {
                    self.notifications.push_back(Notification::Answered(request, outcome));
                }
                // Simulated hosts have no broker.
                MemberOutput::Effect(Effect::Keep { .. } | Effect::LetGo { .. } | Effect::Taken { .. }) => {}
                // The simulation of contracts has its own hosts: `crate::contracts`.
                MemberOutput::Contract(..) => {}
                // Simulated hosts have no ECalls.
                MemberOutput::Ecall(..) => {}
            }
        }
    }
}

/// The host of an application during a call.
pub struct HostContext<'a> {
    /// Current time by the host's clock.
    pub now: Instant,
    /// Virtual time of the simulation. For measurements only; an application must use `now`.
    pub virtual_now: Instant,
    pub member: &'a mut Member,
    pub(super) pending: &'a mut PendingOutputs,
}

impl HostContext<'_> {
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

    /// Passes a reading of the host's monitor to the manager.
    pub fn report(&mut self, reading: &Reading, name: &str, channel: Option<&ChannelId>, to: &Recipient) {
        let now = self.now;
        self.call(|member| member.reading((reading, name), channel, to, now));
    }

    /// Takes all waiting events of a sink.
    pub fn take(&mut self, sink: SinkId) -> Vec<ReceivedEvent> {
        self.with(|node, now| {
            let (mut taken, mut all) = (Taken::default(), Vec::new());
            while node.take(sink, &mut taken, now).unwrap_or(false) {
                all.extend(taken.event().map(|event| ReceivedEvent::new(sink, &event)));
            }
            all
        })
    }

    /// Calls the member and takes its outputs.
    pub fn call<R>(&mut self, act: impl FnOnce(&mut Member) -> R) -> R {
        let result = act(self.member);
        self.pending.take_outputs(self.member);
        result
    }

    /// Calls [`App::timer`] after this time.
    pub fn after(&mut self, time: Nanos, tag: u64) {
        self.at(self.now + time, tag);
    }

    /// Calls [`App::timer`] at this time.
    pub fn at(&mut self, at: Instant, tag: u64) {
        self.pending.timers.push((at, tag));
    }
}
