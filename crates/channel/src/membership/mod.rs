//! Who is there, and what each has told of itself.
//!
//! ```text
//! a change of this host ──> tell ──┄┄──> learn ──> what changes there ──> the directory
//! ```
//! What changes in the directory changes elsewhere, too: [`crate::Node`] carries each change out in both.

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
use crate::{Action, Config, Directory, Error, Held, HostRecord, Incarnation, Limits, Notary, Notice, Origin, wire};

/// The hosts that are there, and the records of all, this host's included.
#[derive(Debug)]
pub(crate) struct Membership {
    /// This one.
    host: Arc<Name>,
    pub directory: Directory,
    neighbours: BTreeMap<Name, Neighbour>,
    telling: Telling,
}

impl Membership {
    pub fn new(host: Arc<Name>, incarnation: Incarnation, now: Instant) -> Membership {
        let mut directory = Directory::default();
        directory.hosts.insert((*host).clone(), HostRecord { incarnation, ..HostRecord::default() });
        Membership { host, directory, neighbours: BTreeMap::new(), telling: Telling::new(now) }
    }

    /// This host's record.
    pub fn own(&self) -> Option<&HostRecord> {
        self.directory.host(&self.host)
    }

    /// A channel as this host holds it.
    pub fn held(&self, channel: &ChannelId) -> Option<&Held> {
        self.own()?.channels.get(channel)
    }

    /// All other hosts that are there.
    pub fn others(&self) -> Vec<Name> {
        self.neighbours.keys().cloned().collect()
    }

    /// The start of another host that is there and has spoken: whoever goes takes its record along.
    pub fn incarnation(&self, host: &Name) -> Option<u64> {
        let record = if *host == *self.host { None } else { self.directory.host(host) };
        record.map(|record| record.incarnation.0)
    }

    /// The network says that a host is there.
    pub fn appeared(&mut self, host: &Name, now: Instant, exit: &mut Exit) {
        if *host == *self.host || self.neighbours.contains_key(host) {
            return;
        }
        if self.neighbours.len() >= Limits::HOSTS {
            return exit.counts.beyond_limit += 1;
        }
        self.neighbours.insert(host.clone(), Neighbour { ask_due: Some(now + PATIENCE), ..Neighbour::default() });
        // It asks again where this gets lost: no digest to all others for each that comes, which would be N² frames.
        self.tell_all(host, now, exit);
        exit.wake_by(now + PATIENCE);
    }

    /// The network says that a host is gone; whether it was there.
    pub fn vanished(&mut self, host: &Name) -> bool {
        self.neighbours.remove(host).is_some()
    }

    /// Which start of a host a frame is of.
    pub fn presence(&self, from: &Name, incarnation: u64) -> Presence {
        match self.incarnation(from) {
            Some(known) if known == incarnation => Presence::Known,
            Some(known) if known > incarnation => Presence::Stranger,
            _ if self.neighbours.contains_key(from) => Presence::NewStart,
            _ => Presence::Stranger,
        }
    }

    /// The first frame of a start that was not known; what was known of the host before is forgotten already.
    pub fn begin(&mut self, host: &Name, incarnation: u64, now: Instant, exit: &mut Exit) {
        let Some(neighbour) = self.neighbours.get_mut(host) else { return };
        neighbour.staging = None;
        neighbour.ask_due = Some(now + PATIENCE);
        let incarnation = Incarnation(incarnation);
        exit.notice(Notice::HostAppeared(host.clone(), incarnation));
        self.directory.hosts.insert(host.clone(), HostRecord { incarnation, ..HostRecord::default() });
        exit.wake_by(now + PATIENCE);
    }

    /// A frame of another version of the protocol: said once.
    pub fn other_version(&mut self, from: &Name, theirs: u8, exit: &mut Exit) {
        exit.counts.other_version += 1;
        let Some(neighbour) = self.neighbours.get_mut(from) else { return };
        if !std::mem::replace(&mut neighbour.other_version, true) {
            exit.notice(Notice::OtherVersion { host: from.clone(), theirs, ours: wire::VERSION });
        }
    }

    /// Carries out one step of a host's record, and says what is to be said of it.
    pub fn apply(&mut self, host: &Name, change: Change, exit: &mut Exit) -> Result<(), Unfit> {
        let notices = self.notices_of(host, &change);
        if self.directory.apply(host, change).is_err() {
            exit.counts.beyond_limit += 1;
            return Err(Unfit);
        }
        notices.into_iter().for_each(|notice| exit.notice(notice));
        Ok(())
    }

    /// A host's record, with nothing left in it, goes.
    pub fn forget(&mut self, host: &Name) {
        self.directory.hosts.remove(host);
    }

    /// How the creation of a channel that stands is held: the earliest of those that are believed.
    ///
    /// With a notary a creation is believed of its creator, whom the network has authenticated, and of everybody who has the
    /// creator's proof. Without one it is believed of a host which may create. That others name a creator proves nothing;
    /// theirs counts where there is no such host, its creator having gone.
    pub fn standing<'a>(&'a self, id: &'a ChannelId, config: &Config) -> Option<&'a Held> {
        if let Some(notary) = &config.notary {
            return self.proved(id, &**notary);
        }
        let may_create = |host: &Name| config.refusal(host, Action::Create, id).is_none();
        let believed = self.directory.holders(id).filter(|(host, _)| may_create(host)).map(|(_, held)| held);
        believed.min_by_key(|held| &held.origin).or_else(|| self.directory.standing(id))
    }

    /// The earliest creation that its creator holds, or that has its proof: signatures are looked at from the earliest on, and
    /// only where the creator does not hold the channel by it itself.
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

    /// Whether it names another creation than the one that this host's opening goes back to: that one may stand.
    pub fn competes(&self, change: &Change) -> bool {
        let Change::Hold(channel, origin, ..) = change else { return false };
        self.held(channel).is_some_and(|mine| *origin != mine.origin)
    }

    /// Refused where a channel, or this host, has as many sources and sinks as there may be.
    pub fn room_for_member(&self, channel: &ChannelId) -> Result<(), Error> {
        let remedy = "share members between applications, or use several channels";
        let all = (1 + self.directory.crowd(channel), "members of one channel", Limits::MEMBERS);
        let own = (1 + self.directory.load(&self.host), "members of one host on all channels", Limits::HOST_MEMBERS);
        let over = [all, own].into_iter().find(|(asked, _, limit)| asked > limit);
        over.map_or(Ok(()), |(asked, what, limit)| Err(Error::TooMany { what, asked, limit, remedy }))
    }
}

/// Which start of a host a frame is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The one that is known.
    Known,
    /// A later one than is known.
    NewStart,
    /// An earlier one, or the host is not there.
    Stranger,
}
