//! What an engineer writes: interests, and what to do when one of them changes.

use qfabric_channel::Registration;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityEvent, Reading};
use qfabric_types::{AppId, Instant};

use super::{Ask, Outcome, Readings};

/// What about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Readings of one attribute.
    Reading(AttributeId),
    /// Control events.
    Control,
    /// What an application of this host is granted of a resource.
    Granted,
    /// Hosts that vanish, and applications that join and leave groups.
    Members,
    /// What became of requests to other hosts.
    Answers,
}

/// Changes that a controller is called for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interest {
    /// Only where it was said here; none: anywhere. What happens on this host itself is said nowhere.
    pub channel: Option<ChannelId>,
    /// What about.
    pub topic: Topic,
}

impl Interest {
    /// Wherever it is said.
    pub fn anywhere(topic: Topic) -> Interest {
        Interest { channel: None, topic }
    }

    /// What is said on one channel.
    pub fn on(channel: &ChannelId, topic: Topic) -> Interest {
        Interest { channel: Some(channel.clone()), topic }
    }
}

/// Something changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Where it was said; none: on this host.
    pub channel: Option<ChannelId>,
    /// Whose it is.
    pub host: Name,
    /// What changed.
    pub what: ChangeKind,
}

/// What changed.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeKind {
    /// A monitoring event.
    Reading(Reading),
    /// A control event.
    Control(QualityEvent),
    /// An application of this host now has so much of a resource.
    Granted {
        /// Which.
        application: AppId,
        /// Of what.
        attribute: AttributeId,
        /// How much; 0: stopped.
        amount: i64,
    },
    /// A host is gone, with all that ran there.
    HostGone,
    /// An application joined a group.
    Joined(Registration),
    /// It left.
    Left(Registration),
    /// A request to other hosts ended.
    Answer {
        /// Which.
        request: u64,
        /// How.
        outcome: Outcome,
    },
}

impl ChangeKind {
    pub(super) fn topic(&self) -> Topic {
        match self {
            ChangeKind::Reading(reading) => Topic::Reading(reading.attribute),
            ChangeKind::Control(_) => Topic::Control,
            ChangeKind::Granted { .. } => Topic::Granted,
            ChangeKind::HostGone | ChangeKind::Joined(_) | ChangeKind::Left(_) => Topic::Members,
            ChangeKind::Answer { .. } => Topic::Answers,
        }
    }
}

/// Who is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// All managers on the channel.
    All,
    /// The manager of one host.
    Host(Name),
    /// The managers of those hosts that have a source on the data channel: where reports of sinks go.
    Sources,
}

/// A filter of this host.
pub type Filter = qfabric_channel::Spot;

/// What a controller wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// A control event.
    Tell {
        /// Where.
        channel: ChannelId,
        /// To whom.
        to: Recipient,
        /// What.
        event: QualityEvent,
    },
    /// A filter's parameter changes; the next event sees it.
    Parameter {
        /// Which filter.
        filter: Filter,
        /// Which parameter.
        parameter: String,
        /// To what.
        value: i64,
    },
    /// An application of this host gets so much of a resource, through its broker.
    Apply {
        /// Which.
        application: AppId,
        /// Of what.
        attribute: AttributeId,
        /// How much.
        amount: i64,
    },
    /// Nobody decides any more how much of a resource it gets: what keeps it at the last amount lets go.
    Release {
        /// Which.
        application: AppId,
        /// Of what.
        attribute: AttributeId,
    },
    /// Other hosts are asked for what cannot be had here.
    Ask(Ask),
}

/// What a controller wants done, in order.
pub type Decisions = Vec<Decision>;

/// What is known when a controller is called.
#[derive(Debug)]
pub struct View<'a> {
    /// This host.
    pub host: &'a Name,
    /// Now.
    pub now: Instant,
    /// What was heard before.
    pub readings: &'a Readings,
}

impl View<'_> {
    /// The last reading of a host's attribute that some controller is interested in.
    pub fn latest(&self, host: &Name, attribute: AttributeId, application: AppId) -> Option<&Reading> {
        self.readings.get(host, attribute, application)
    }

    /// The last readings of an attribute, of all hosts and applications.
    pub fn all(&self, attribute: AttributeId) -> impl Iterator<Item = (&Name, &Reading)> {
        self.readings.all(attribute)
    }
}

/// A policy: called when something of interest changes, answers with decisions.
pub trait Controller: Send {
    /// Its name; control events carry its number.
    fn name(&self) -> &str;

    /// What it wants to be called for. Asked once, when it is added.
    fn interests(&self) -> Vec<Interest>;

    /// Something of interest changed.
    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions);

    /// Its time has come.
    fn woken(&mut self, _view: &View<'_>, _decisions: &mut Decisions) {}

    /// When [`Controller::woken`] is to be called; asked after every call.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }
}
