//! The interface of policies: a controller states its interests, and decides when one of them changes.

use qfabric_channel::Registration;
use qfabric_types::api::channel::Candidate;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityEvent, Reading};
use qfabric_types::{AppId, Instant};

use super::{Ask, Outcome, Readings};

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Readings of one attribute.
    Reading(AttributeId),
    /// Control events.
    Control,
    /// The amount of a resource that an application of this host is granted.
    Granted,
    /// Hosts that crash, applications that join and leave groups, and sources of this host that join channels. A sink
    /// that closes is no such change: its host only stops its reports.
    Members,
    /// Outcomes of requests to other hosts.
    Answers,
}

/// A kind of change for which a controller is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interest {
    /// Only events on this channel; `None`: on any. Changes of this host itself come on no channel.
    pub channel: Option<ChannelId>,
    pub topic: Topic,
}

impl Interest {
    /// Changes on any channel and of this host.
    pub fn anywhere(topic: Topic) -> Interest {
        Interest { channel: None, topic }
    }

    /// Changes on one channel.
    pub fn on(channel: &ChannelId, topic: Topic) -> Interest {
        Interest { channel: Some(channel.clone()), topic }
    }
}

/// A change with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The channel of the event; `None`: this host.
    pub channel: Option<ChannelId>,
    /// The host that it concerns.
    pub host: Name,
    pub what: ChangeKind,
}

/// The content of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeKind {
    /// A monitoring event.
    Reading(Reading),
    /// A control event.
    Control(QualityEvent),
    /// An application of this host is granted another amount of a resource.
    Granted {
        application: AppId,
        attribute: AttributeId,
        /// The new amount; 0: stopped.
        amount: i64,
    },
    /// A host is gone, with all its applications.
    HostGone,
    /// An application joined a group.
    Joined(Registration),
    /// An application left a group.
    Left(Registration),
    /// A source of this host joined the data channel of the change's Q-channel; it knows no earlier decision.
    SourceJoined,
    /// A request to other hosts ended.
    Answer { request: u64, outcome: Outcome },
}

impl ChangeKind {
    pub(super) fn topic(&self) -> Topic {
        match self {
            ChangeKind::Reading(reading) => Topic::Reading(reading.attribute),
            ChangeKind::Control(_) => Topic::Control,
            ChangeKind::Granted { .. } => Topic::Granted,
            ChangeKind::HostGone | ChangeKind::Joined(_) | ChangeKind::Left(_) | ChangeKind::SourceJoined => {
                Topic::Members
            }
            ChangeKind::Answer { .. } => Topic::Answers,
        }
    }
}

/// The recipients of a control event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The managers on the channel of all hosts.
    All,
    /// The manager of one host.
    Host(Name),
    /// The managers of the hosts that have a source on the data channel; sinks send their reports there.
    Sources,
}

/// The place of a filter of this host.
pub type Filter = qfabric_channel::FilterId;

/// A decision of a controller.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Publish a control event.
    Tell { channel: ChannelId, to: Recipient, event: QualityEvent },
    /// Change a parameter of a filter; the next event uses it.
    Parameter { filter: Filter, parameter: String, value: i64 },
    /// Give an application of this host an amount of a resource, through its broker; or give the stream from this host
    /// to another host a rate: the application is then [`stream_of`](super::policies::stream_of) the other host, and
    /// the attribute is [`RATE`](super::policies::RATE).
    Apply { application: AppId, attribute: AttributeId, amount: i64 },
    /// No policy decides about this amount any more: the mechanism that keeps the last amount may release it.
    Release { application: AppId, attribute: AttributeId },
    /// Ask other hosts for a resource that this host cannot give.
    Ask(Ask),
}

/// Why a controller made a decision: its cause, and what it compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reasons {
    /// The measurement that led to the decision.
    pub cause: String,
    /// The part that limits the stream, with the measurement.
    pub bottleneck: Option<String>,
    pub decision: String,
    pub candidates: Vec<Candidate>,
}

/// Decisions, in order.
pub type Decisions = Vec<Decision>;

/// The facts available to a controller when it is called.
#[derive(Debug)]
pub struct View<'a> {
    pub host: &'a Name,
    pub now: Instant,
    /// The last readings received.
    pub readings: &'a Readings,
}

impl View<'_> {
    /// The last reading of a host's attribute, if some controller is interested in it.
    pub fn latest(&self, host: &Name, attribute: AttributeId, application: AppId) -> Option<&Reading> {
        self.readings.get(host, attribute, application)
    }

    /// The last readings of an attribute, of all hosts and applications.
    pub fn all(&self, attribute: AttributeId) -> impl Iterator<Item = (&Name, &Reading)> {
        self.readings.all(attribute)
    }

    /// The last readings of a host's attribute, of all its applications.
    pub fn of_host(&self, host: &Name, attribute: AttributeId) -> impl Iterator<Item = &Reading> {
        self.readings.of_host(host, attribute)
    }
}

/// A policy together with its interests: called when one of them changes, answers with decisions. The amounts that it
/// decides take effect only on the host on which it runs.
pub trait Controller: Send {
    /// Its name; control events carry the name's number.
    fn name(&self) -> &str;

    /// The changes for which it is called. Read once, when the controller is added.
    fn interests(&self) -> Vec<Interest>;

    /// One of its interests changed.
    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions);

    /// The time from [`Controller::next_wakeup`] has come.
    fn woken(&mut self, _view: &View<'_>, _decisions: &mut Decisions) {}

    /// Takes the explanations of the decisions of the last call, for a controller that compares candidates. At most
    /// one per call is kept.
    fn explanation(&mut self) -> Option<Reasons> {
        None
    }

    /// When [`Controller::woken`] must be called; read after every call.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }
}
