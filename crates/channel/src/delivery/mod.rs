//! Events: from this host's sources to sinks here and elsewhere, and their outcomes.
//!
//! ```text
//! submit ──┄┄──> receive ──> take      the path of an event
//! books: marks there, reports back      numbers of events sent, and their outcomes
//! seats                                 the sinks of all hosts, from the directory
//! unread                                the events under way to each sink, over all sources
//! link: clock, flow, pipe, assembly     another host: its clock, the frames under way or waiting, the fragments that arrive
//! ```

mod assembly;
mod books;
mod channel;
mod channels;
mod clock;
mod flow;
mod gather;
mod leaving;
mod link;
mod pipe;
mod pump;
mod receive;
mod scratch;
mod seats;
mod send;
mod submit;
mod take;
mod unread;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qfabric_types::channel::{ChannelId, Name};

pub(crate) use channel::{Bound, Channel, Mode, Roster, Sink, Source, Totals};
pub(crate) use channels::Channels;
use link::Link;
use scratch::Scratch;
pub(crate) use seats::Step;

use crate::MemberId;
use crate::filter::Accounts;

/// The open channels, and the hosts that events come from and go to.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// This host.
    host: Arc<Name>,
    pub channels: Channels,
    links: BTreeMap<Name, Link>,
    /// Open channels whose roster has to be built again.
    stale: BTreeSet<ChannelId>,
    /// Sinks that no source here has welcomed yet, by the place of their channel.
    fresh: Vec<(u32, MemberId)>,
    /// Sources of other hosts that have left since the last [`Delivery::settle`].
    left: Vec<(Name, u32)>,
    scratch: Scratch,
    /// The instructions of filters, by payer.
    pub accounts: Accounts,
}

impl Delivery {
    pub(crate) fn new(host: Arc<Name>, filter_rate: u64) -> Delivery {
        let (channels, links, stale, fresh, left, scratch) = Default::default();
        Delivery { host, channels, links, stale, fresh, left, scratch, accounts: Accounts::new(filter_rate) }
    }

    /// A host has a new incarnation: its earlier sources are gone. The difference of its clock stays.
    pub(crate) fn greet(&mut self, host: &Name, incarnation: u64) {
        let link = self.links.entry(host.clone()).or_insert_with(|| Link::new(host, incarnation));
        link.incarnation = incarnation;
        self.left.retain(|(name, _)| name != host);
        let (inbound, waited) = link.begin();
        self.fold(inbound);
        self.gone_out(waited);
    }

    /// A host has told its number of the meeting: accounts are of this meeting from now on.
    pub(crate) fn meet(&mut self, host: &Name, meeting: u64) {
        if let Some(link) = self.links.get_mut(host) {
            link.meeting = meeting;
        }
    }

    /// A host is gone.
    pub(crate) fn part(&mut self, host: &Name) {
        if let Some(mut link) = self.links.remove(host) {
            let (inbound, waited) = link.begin();
            self.fold(inbound);
            self.gone_out(waited);
        }
    }

    /// The other host's clock less this host's in ns, and the largest error.
    pub(crate) fn clock_offset(&self, host: &Name) -> Option<(i64, qfabric_types::Nanos)> {
        self.links.get(host)?.clock.offset()
    }
}
