//! Which hosts are present, and the record of each.
//!
//! ```text
//! a change of this host ──> tell ──┄┄──> learn ──> the changes on the other host ──> the directory
//! ```
//! [`crate::Node`] applies each change both to the directory and to the other parts.

mod learn;
mod neighbour;
mod tell;
mod telling;

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name};

pub(crate) use learn::News;
use neighbour::{Neighbour, PATIENCE};
use telling::Telling;

use crate::change::Change;
use crate::directory::Unfit;
use crate::exit::Exit;
use crate::notary::statement;
use crate::wire::Full;
use crate::{Action, Config, Directory, Error, Held, HostRecord, Incarnation, Limits, Notary, Notice, Origin, wire};

/// The hosts that are present, and the records of all hosts, this host included.
#[derive(Debug)]
pub(crate) struct Membership {
    /// This host.
    host: Arc<Name>,
    pub directory: Directory,
    neighbours: BTreeMap<Name, Neighbour>,
    /// Number of meetings with other hosts since the start of this one.
    meetings: u64,
    telling: Telling,
}

impl Membership {
    pub(crate) fn new(host: Arc<Name>, incarnation: Incarnation, now: Instant) -> Membership {
        let mut directory = Directory::default();
        directory.hosts.insert((*host).clone(), HostRecord { incarnation, ..HostRecord::default() });
        Membership { host, directory, neighbours: BTreeMap::new(), meetings: 0, telling: Telling::new(now) }
    }

    pub(crate) fn own(&self) -> Option<&HostRecord> {
        self.directory.host(&self.host)
    }

    /// A channel as this host holds it.
    pub(crate) fn held(&self, channel: &ChannelId) -> Option<&Held> {
        self.own()?.channels.get(channel)
    }

    /// All other hosts that are present.
    pub(crate) fn others(&self) -> Vec<Name> {
        self.neighbours.keys().cloned().collect()
    }

    /// The incarnation of another host that is present and has sent a frame.
    pub(crate) fn incarnation(&self, host: &Name) -> Option<u64> {
        self.neighbours.get(host)?.incarnation
    }

    /// The network reports that a host is present. Returns false if the host was already present or is one too many.
    pub(crate) fn appeared(&mut self, host: &Name, now: Instant, exit: &mut Exit) -> bool {
        if *host == *self.host || self.neighbours.contains_key(host) {
            return false;
        }
        if self.neighbours.len() >= Limits::HOSTS {
            exit.counts.beyond_limit += 1;
            return false;
        }
        let meeting = self.next_meeting();
        self.neighbours.entry(host.clone()).or_default().begin(meeting, now);
        exit.wake_by(now + PATIENCE);
        true
    }

    fn next_meeting(&mut self) -> u64 {
        self.meetings += 1;
        self.meetings
    }

    /// Whether the host took this host for gone: both had met, and it tells a later meeting.
    pub(crate) fn is_forgotten_by(&self, from: &Name, part: &Full) -> bool {
        self.neighbours.get(from).is_some_and(|there| there.has_met() && part.meeting > there.theirs)
    }

    /// Whether `number` is this host's number of its present meeting with the host.
    pub(crate) fn is_meeting(&self, host: &Name, number: u64) -> bool {
        self.neighbours.get(host).is_some_and(|there| there.meeting == number)
    }

    /// This host begins a meeting of its own with a host that has lost it.
    pub(crate) fn meet_again(&mut self, host: &Name, now: Instant, exit: &mut Exit) {
        let meeting = self.next_meeting();
        if let Some(there) = self.neighbours.get_mut(host) {
            there.begin(meeting, now);
            there.is_renewed = true;
            exit.wake_by(now);
        }
    }

    /// The network reports that a host is gone; returns whether it was present.
    pub(crate) fn vanished(&mut self, host: &Name) -> bool {
        self.neighbours.remove(host).is_some()
    }

    /// Compares a frame's incarnation with the host's known one.
    pub(crate) fn presence(&self, from: &Name, incarnation: u64) -> Presence {
        match self.incarnation(from) {
            Some(known) if known == incarnation => Presence::Known,
            Some(known) if known > incarnation => Presence::Stranger,
            _ if self.neighbours.contains_key(from) => Presence::NewStart,
            _ => Presence::Stranger,
        }
    }

    /// The first frame of a new incarnation. The caller has already removed everything known of the earlier one.
    pub(crate) fn begin(&mut self, host: &Name, incarnation: u64, now: Instant, exit: &mut Exit) {
        let Some(neighbour) = self.neighbours.get_mut(host) else { return };
        if neighbour.is_confirmed || neighbour.theirs != 0 {
            // The host has restarted, and no disappearance was reported. Only its earlier start knows the number.
            neighbour.begin(neighbour.meeting, now);
            exit.wake_by(now);
        }
        neighbour.staging = None;
        neighbour.ask_due = Some(now + PATIENCE);
        neighbour.incarnation = Some(incarnation);
        exit.wake_by(now + PATIENCE);
    }

    /// Counts a frame of another version of the protocol; reports each host once.
    pub(crate) fn other_version(&mut self, from: &Name, theirs: u8, exit: &mut Exit) {
        exit.counts.other_version += 1;
        let Some(neighbour) = self.neighbours.get_mut(from) else { return };
        if !std::mem::replace(&mut neighbour.other_version, true) {
            exit.notice(Notice::OtherVersion { host: from.clone(), theirs, ours: wire::VERSION });
        }
    }

    /// Applies one change of a host's record and reports it in notices.
    pub(crate) fn apply(&mut self, host: &Name, change: Change, exit: &mut Exit) -> Result<(), Unfit> {
        let notices = self.notices_of(host, &change);
        if self.directory.apply(host, change).is_err() {
            exit.counts.beyond_limit += 1;
            return Err(Unfit);
        }
        notices.into_iter().for_each(|notice| exit.notice(notice));
        Ok(())
    }

    /// Removes a host's record; the caller has emptied it.
    pub(crate) fn forget(&mut self, host: &Name) {
        self.directory.hosts.remove(host);
    }

    /// The holding by which a channel's winning creation is known: the earliest creation that is believed.
    ///
    /// With a notary, a creation is believed if its creator holds the channel (the network has authenticated the creator), or
    /// if the holder has the creator's proof. Without a notary, a creation is believed if the holder itself may create the
    /// channel, because naming another host as creator proves nothing. If no holder may create the channel, for example because
    /// its creator is gone, the earliest creation counts.
    pub(crate) fn standing<'a>(&'a self, id: &'a ChannelId, config: &Config) -> Option<&'a Held> {
        if let Some(notary) = &config.notary {
            return self.proved(id, &**notary);
        }
        let may_create = |host: &Name| config.refusal(host, Action::Create, id).is_none();
        let believed = self.directory.holders(id).filter(|(host, _)| may_create(host)).map(|(_, held)| held);
        believed.min_by_key(|held| &held.origin).or_else(|| self.directory.standing(id))
    }

    /// The earliest creation that its creator holds or whose proof is valid. Signatures are verified from the earliest
    /// creation on, and only if the creator does not hold the channel from this creation itself.
    fn proved<'a>(&'a self, id: &'a ChannelId, notary: &dyn Notary) -> Option<&'a Held> {
        let mut held: Vec<_> = self.directory.holders(id).collect();
        held.sort_by_key(|(host, held)| (&held.origin, held.origin.creator != **host));
        let is_believed = |host: &Name, held: &Held| {
            let Origin { created_unix_ns, creator } = &held.origin;
            let says = || statement(id, &held.origin, &held.spec);
            host == creator || notary.verifies(creator, *created_unix_ns, &says(), held.proof.bytes())
        };
        held.into_iter().find(|(host, held)| is_believed(host, held)).map(|(_, held)| held)
    }

    /// Whether the change names another creation than this host's opening; the other creation may win.
    pub(crate) fn competes(&self, change: &Change) -> bool {
        let Change::Hold(channel, origin, ..) = change else { return false };
        self.held(channel).is_some_and(|mine| *origin != mine.origin)
    }

    /// Refuses if the channel or this host has the maximal number of sources and sinks.
    pub(crate) fn room_for_member(&self, channel: &ChannelId) -> Result<(), Error> {
        let remedy = "share members between applications, or use several channels";
        let all = (1 + self.directory.crowd(channel), "members of one channel", Limits::MEMBERS);
        let own = (1 + self.directory.load(&self.host), "members of one host on all channels", Limits::HOST_MEMBERS);
        let over = [all, own].into_iter().find(|(asked, _, limit)| asked > limit);
        over.map_or(Ok(()), |(asked, what, limit)| Err(Error::TooMany { what, asked, limit, remedy }))
    }
}

/// How a frame's incarnation compares with the sender's known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The known incarnation.
    Known,
    /// A later incarnation.
    NewStart,
    /// An earlier incarnation, or the host is not present.
    Stranger,
}
