//! Runs a policy's controller: counts its calls, and carries out its decisions about streams and applications.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_host::manager::policies::{LEVEL, RATE};
use qfabric_host::manager::{
    Change, ChangeKind, Controller, Decision, Decisions, Interest, Reasons, Recipient, Topic, View,
};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::timeline::TimelineEvent;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, HOST, QualityKind, Reading};
use qfabric_types::{AppId, Instant};

use super::super::lock;
use super::super::mailbox::{Adjusted, Audience, Mailbox, Notification};
use super::cpu::is_cpu;
use super::group::Members;
use super::kinds::Pacing;
use super::pace::{self, Paces};
use super::why::{Explanations, plain_reasons};
use crate::auth::Peer;
use crate::net::Board;
use crate::timeline::Recorder;

/// State of a policy outside its controller.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub calls: u64,
    pub decisions: u64,
    pub faults: u64,
    pub fault: Option<String>,
    /// The policy was stopped; a call that is still running decides nothing any more.
    pub is_over: bool,
    /// The policy has decided about contracts.
    pub decides_contracts: bool,
    /// The last amount of each attribute, by the subject of the decision.
    pub decided: BTreeMap<(String, AttributeId), (i64, Instant)>,
    /// The last explanations.
    pub why: Explanations,
}

impl Record {
    /// From now on the policy decides nothing.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.decided.clear();
    }

    /// Records that the controller panicked with this message.
    pub(super) fn fails(&mut self, message: String) {
        self.faults += 1;
        self.fault = Some(format!("it panicked: {message}"));
    }
}

/// Shared by the controller and the API.
pub(super) type Shared = Arc<Lock<Record, { rank::RECORD }>>;

/// Decided rates at which the events of a channel go to each host.
pub(super) struct Streams {
    pub channel: Name,
    pub paces: Paces,
    pub mailbox: Arc<Mailbox>,
    pub pacing: Pacing,
    /// Only events of this user's sources are paced, and only this user's applications are notified; none: those of all.
    pub user: Option<u32>,
    /// Hosts that have reported, by the numbers of their streams.
    pub hosts: BTreeMap<AppId, Name>,
}

/// Where decisions take effect, besides channels and filters.
pub(super) struct Outlets {
    /// One for each channel.
    pub streams: Vec<Streams>,
    pub members: Option<Members>,
    pub levels: Option<Levels>,
}

/// Decided levels of quality, for the applications of this host with a source on the channel.
pub(super) struct Levels {
    channel: Name,
    dimensions: BTreeMap<AttributeId, Name>,
    /// Only this user's encoders receive the levels; none: those of all users.
    user: Option<u32>,
    mailbox: Arc<Mailbox>,
}

impl Levels {
    pub(super) fn new(channel: &Name, dimensions: &[&Name], user: Option<u32>, mailbox: &Arc<Mailbox>) -> Levels {
        let dimension = |name: &&Name| (AttributeId::of(name.as_str()), (*name).clone());
        let dimensions = dimensions.iter().map(dimension).collect();
        Levels { channel: channel.clone(), dimensions, user, mailbox: mailbox.clone() }
    }

    /// The dimension whose level is decided.
    fn dimension(&self, application: AppId, attribute: AttributeId) -> Option<&Name> {
        self.dimensions.get(&attribute).filter(|_| application == HOST)
    }

    /// Notifies the sources of the level of a dimension; returns whether the decision was one.
    fn carry_out(&self, decision: &Decision) -> bool {
        let Decision::Apply { application, attribute, amount } = decision else { return false };
        let Some(dimension) = self.dimension(*application, *attribute) else { return false };
        self.tell(dimension.to_string(), Some(*amount));
        true
    }

    /// None: no policy decides the level any more.
    fn tell(&self, subject: String, amount: Option<i64>) {
        let (channel, attribute) = (ChannelId::data(self.channel.clone()), AttributeId::of(LEVEL));
        let (audience, user) = (Audience::Sources, self.user);
        self.mailbox.tell(Notification { channel, attribute, subject, amount, audience, user });
    }

    /// Notifies the sources that no policy decides the levels any more.
    pub(super) fn release(&self, record: &Record) {
        for (subject, attribute) in record.decided.keys() {
            if *attribute == AttributeId::of(LEVEL) && self.dimensions.values().any(|one| one.as_str() == subject) {
                self.tell(subject.clone(), None);
            }
        }
    }
}

/// A controller whose calls are counted.
pub(super) struct Supervised {
    pub inner: Box<dyn Controller>,
    pub record: Shared,
    pub outlets: Outlets,
    /// The user who answers for its decisions about reservations.
    pub peer: Peer,
    pub mailbox: Arc<Mailbox>,
    /// Takes its decisions about streams of packets.
    pub board: Arc<Board>,
    /// Where its decisions are recorded.
    pub history: History,
}

/// The decisions of one policy in the timeline.
pub(super) struct History {
    pub timeline: Arc<Recorder>,
    pub policy: Name,
    /// The channel or group, as text.
    pub channel: String,
}

impl History {
    fn record(&self, peer: Peer, reasons: &Reasons, now: Instant) {
        let Reasons { cause, decision, .. } = reasons;
        let (policy, channel) = (self.policy.to_string(), self.channel.clone());
        let event = TimelineEvent::Policy { policy, channel, text: format!("{decision} (because: {cause})") };
        self.timeline.decided(peer.owner.uid, now, event);
    }
}

impl Controller for Supervised {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn interests(&self) -> Vec<Interest> {
        let (mut interests, members) = (self.inner.interests(), Interest::anywhere(Topic::Members));
        if self.outlets.members.is_some() && !interests.contains(&members) {
            interests.push(members);
        }
        interests
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        let before = decisions.len();
        let Supervised { outlets: Outlets { streams, members, .. }, record, mailbox, history, .. } = self;
        let guard = lock(record);
        if guard.is_over {
            return;
        }
        // Only policies that decide about one channel correct reports.
        let corrected = streams.iter_mut().fold(None, |before, one| one.on_change(change, view.now).or(before));
        drop(guard);
        if let Some(members) = members {
            if let Some((left, name)) = members.on_change(change, view.host) {
                let mut record = lock(record);
                record.decided.retain(|(subject, _), _| *subject != name.as_str());
                if record.decides_contracts && !record.is_over {
                    mailbox.withdraw(&history.policy, Some(left));
                }
            }
            if is_of_others(change, members) {
                return;
            }
        }
        let change = corrected.as_ref().unwrap_or(change);
        self.inner.changed(change, view, decisions);
        self.carry_out(before, Some(change), view, decisions);
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        let before = decisions.len();
        self.inner.woken(view, decisions);
        self.carry_out(before, None, view, decisions);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.inner.next_wakeup()
    }
}

impl Supervised {
    /// Carries out decisions about streams, members and reservations; the manager carries out the rest.
    fn carry_out(&mut self, before: usize, change: Option<&Change>, view: &View<'_>, decisions: &mut Decisions) {
        let Supervised { inner, record, outlets, peer, mailbox, board, history } = self;
        let reasons = inner.explanation();
        let mut record = lock(record);
        if record.is_over {
            return decisions.truncate(before);
        }
        record.calls += 1;
        record.decisions += (decisions.len() - before) as u64;
        let reasons = reasons.or_else(|| {
            plain_reasons(change, &decisions[before..], |application, attribute| outlets.key(application, attribute))
        });
        if let Some(reasons) = reasons {
            history.record(*peer, &reasons, view.now);
            record.why.push(view.now, reasons);
        }
        for decision in decisions.split_off(before) {
            if let Decision::Apply { application, attribute, amount } = decision {
                record.decided.insert(outlets.key(application, attribute), (amount, view.now));
                record.decides_contracts |= is_cpu(attribute);
            } else if let Decision::Release { application, attribute } = decision {
                record.decided.remove(&outlets.key(application, attribute));
            } else if let Decision::Tell { to, event, .. } = &decision
                && event.kind == QualityKind::Level
            {
                record.decided.insert((subject_of(to), event.attribute), (event.value, view.now));
            }
            let is_done = outlets.carry_out(&decision, view.now)
                || adjust(&decision, (&history.policy, *peer), mailbox)
                || steer(&decision, *peer, board);
            if !is_done {
                decisions.push(decision);
            }
        }
    }
}

/// The recipient of a decision, as text.
fn subject_of(to: &Recipient) -> String {
    match to {
        Recipient::All => "all".to_owned(),
        Recipient::Sources => "all sources".to_owned(),
        Recipient::Host(host) => host.to_string(),
    }
}

/// Whether the change comes from an application of this host that is not in the group.
fn is_of_others(change: &Change, members: &Members) -> bool {
    let ChangeKind::Reading(reading) = &change.what else { return false };
    change.channel.is_none() && reading.application != HOST && members.name(reading.application).is_none()
}

impl Outlets {
    /// The subject and the attribute of a decision, as they are shown.
    fn key(&self, application: AppId, attribute: AttributeId) -> (String, AttributeId) {
        let dimension = self.levels.as_ref().and_then(|levels| levels.dimension(application, attribute));
        match dimension {
            Some(dimension) => (dimension.to_string(), AttributeId::of(LEVEL)),
            None => (self.subject(application), attribute),
        }
    }

    fn subject(&self, application: AppId) -> String {
        let stream = match self.streams.as_slice() {
            [one] => one.hosts.get(&application).map(ToString::to_string),
            // A host may have several streams.
            all => all.iter().find_map(|one| Some(format!("{}/{}", one.channel, one.hosts.get(&application)?))),
        };
        let member = || Some(self.members.as_ref()?.name(application)?.to_string());
        stream.or_else(member).unwrap_or_else(|| application.to_string())
    }

    fn carry_out(&self, decision: &Decision, now: Instant) -> bool {
        self.streams.iter().any(|streams| streams.carry_out(decision, now))
            || self.levels.as_ref().is_some_and(|levels| levels.carry_out(decision))
            || self.members.as_ref().is_some_and(|members| members.carry_out(decision))
    }
}

/// Passes on a decision about the CPU time of an application of this host; returns whether it was one.
fn adjust(decision: &Decision, (policy, peer): (&Name, Peer), mailbox: &Mailbox) -> bool {
    let Decision::Apply { application, attribute, amount } = *decision else { return false };
    let is_cpu = is_cpu(attribute);
    if is_cpu {
        let policy = policy.clone();
        mailbox.adjust(Adjusted { policy, peer, application, member: None, attribute, amount });
    }
    is_cpu
}

/// Passes on a decision about a stream of packets of this host; returns whether it was one.
fn steer(decision: &Decision, peer: Peer, board: &Board) -> bool {
    match *decision {
        Decision::Apply { attribute, amount, .. } => board.decide(peer, attribute, amount),
        _ => false,
    }
}

impl Streams {
    /// Carries out a decision about a stream of this channel. Returns `false`, without effect, for any other decision.
    fn carry_out(&self, decision: &Decision, now: Instant) -> bool {
        let (application, attribute, amount) = match decision {
            Decision::Apply { application, attribute, amount } => (application, attribute, Some(*amount)),
            Decision::Release { application, attribute } => (application, attribute, None),
            _ => return false,
        };
        let Some(host) = self.hosts.get(application).filter(|_| *attribute == AttributeId::of(RATE)) else {
            return false;
        };
        self.decide(host, amount, now);
        true
    }

    /// Sets the first rate of a host, if the policy holds rates.
    fn begin(&mut self, host: &Name, now: Instant) {
        let Some(first) = self.pacing.first_milli else { return };
        if lock(&self.paces).of(self.user).hosts().all(|known| known != host) {
            self.decide(host, Some(first), now);
        }
    }

    /// None: events go to the host without pacing.
    fn decide(&self, host: &Name, amount: Option<i64>, now: Instant) {
        let mut tables = lock(&self.paces);
        match amount {
            Some(amount) => tables.of(self.user).decide(host, amount, now),
            None => tables.of(self.user).forget(host),
        }
        let rates = tables.in_force(host, self.user);
        drop(tables);
        pace::tell(&self.mailbox, &ChannelId::data(self.channel.clone()), host, rates);
    }

    /// Learns which host a stream belongs to. Corrects a report by the rate that was sent: if a source sends less than
    /// was decided, the difference was not lost. Returns the corrected report.
    fn on_change(&mut self, change: &Change, now: Instant) -> Option<Change> {
        let stream = (self.pacing.number)(&self.channel, &change.host);
        match &change.what {
            ChangeKind::HostGone => {
                self.hosts.remove(&stream);
                lock(&self.paces).of(self.user).forget(&change.host);
                None
            }
            ChangeKind::Reading(reading) => {
                self.hosts.entry(stream).or_insert_with(|| change.host.clone());
                self.begin(&change.host, now);
                let is_rate = self.pacing.corrects && reading.attribute == AttributeId::of(RATE);
                let (decided, sent) =
                    is_rate.then(|| lock(&self.paces).of(self.user).sent(&change.host, now)).flatten()?;
                let value = in_relation(reading.value, sent, decided);
                Some(Change { what: ChangeKind::Reading(Reading { value, ..*reading }), ..change.clone() })
            }
            _ => {
                self.hosts.entry(stream).or_insert_with(|| change.host.clone());
                None
            }
        }
    }
}

/// The rate that would arrive of the decided rate, if the same part arrived as of the rate that was sent. If nothing
/// was sent, nothing was lost.
fn in_relation(arrived: i64, sent: i64, decided: i64) -> i64 {
    if sent <= 0 || arrived >= sent {
        return decided;
    }
    (i128::from(arrived.max(0)) * i128::from(decided) / i128::from(sent)) as i64
}

#[cfg(test)]
mod tests {
    use qfabric_host::manager::Readings;
    use qfabric_types::Owner;

    use super::*;
    use crate::ending::Ending;

    #[test]
    fn a_source_that_sends_less_than_decided_is_no_bottleneck() {
        assert_eq!(in_relation(12_000, 12_000, 25_000), 25_000, "all that was sent has arrived");
        assert_eq!(in_relation(6_000, 12_000, 25_000), 12_500, "half of it");
        assert_eq!(in_relation(0, 0, 25_000), 25_000, "nothing was sent");
        assert_eq!(in_relation(0, 12_000, 25_000), 0);
    }

    /// Returns the same decision in every call.
    struct Steady;

    impl Controller for Steady {
        fn name(&self) -> &str {
            "steady"
        }

        fn interests(&self) -> Vec<Interest> {
            Vec::new()
        }

        fn changed(&mut self, _change: &Change, _view: &View<'_>, _decisions: &mut Decisions) {}

        fn woken(&mut self, _view: &View<'_>, decisions: &mut Decisions) {
            let (application, attribute) = (AppId(1), AttributeId::of("net.bytes"));
            decisions.push(Decision::Apply { application, attribute, amount: 3 });
        }
    }

    #[test]
    fn what_comes_of_a_call_after_the_stop_is_dropped() {
        let mailbox = Arc::new(Mailbox::new(&Ending::new().unwrap()).unwrap());
        let outlets = Outlets { streams: Vec::new(), members: None, levels: None };
        let peer = Peer { pid: 0, owner: Owner { uid: 0, gid: 0 } };
        let record = Shared::default();
        let channel = String::new();
        let history = History { timeline: Arc::default(), policy: "steady".parse().unwrap(), channel };
        let inner = Box::new(Steady);
        let board = Arc::default();
        let mut policy = Supervised { inner, record: record.clone(), outlets, peer, mailbox, board, history };
        let (host, readings, mut decisions) = ("a".parse().unwrap(), Readings::new(1), Vec::new());
        let view = View { host: &host, now: Instant::ZERO, readings: &readings };
        policy.woken(&view, &mut decisions);
        assert_eq!((decisions.len(), lock(&record).decided.len()), (1, 1));
        lock(&record).end();
        policy.woken(&view, &mut decisions);
        let record = lock(&record);
        assert_eq!((decisions.len(), record.calls, record.decided.len()), (1, 1, 0));
    }
}
