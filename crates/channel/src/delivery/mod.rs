//! Events: from this host's sources to sinks here and elsewhere, and what became of them.
//!
//! ```text
//! submit ──┄┄──> receive ──> take      an event's way
//! books: marks there, reports back      what was sent, and what became of it
//! seats                                 the sinks of all hosts, as the directory names them
//! link: clock, flow, pipe, assembly     another host: its clock, what is on its way there or waits for that, what comes from it
//! ```

mod assembly;
mod books;
mod channel;
mod channels;
mod clock;
mod flow;
mod gather;
mod link;
mod pipe;
mod pump;
mod receive;
mod scratch;
mod seats;
mod send;
mod submit;
mod take;
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

/// The channels that are open here, and the hosts that events come from and go to.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// This one.
    host: Arc<Name>,
    pub channels: Channels,
    links: BTreeMap<Name, Link>,
    /// Open channels whose roster has to be made anew.
    stale: BTreeSet<ChannelId>,
    /// Sinks that no source here has welcomed yet, by place of their channel.
    fresh: Vec<(u32, MemberId)>,
    scratch: Scratch,
}

impl Delivery {
    pub fn new(host: Arc<Name>) -> Delivery {
        let (channels, links, stale, fresh, scratch) = Default::default();
        Delivery { host, channels, links, stale, fresh, scratch }
    }

    /// A host has started: what its sources sent before is over. How its clock differs stays.
    pub fn greet(&mut self, host: &Name, incarnation: u64) {
        let link = self.links.entry(host.clone()).or_insert_with(|| Link::new(host, incarnation));
        link.incarnation = incarnation;
        let (inbound, waited) = link.begin();
        self.fold(inbound);
        self.gone_out(waited);
    }

    /// A host is gone.
    pub fn part(&mut self, host: &Name) {
        if let Some(mut link) = self.links.remove(host) {
            let (inbound, waited) = link.begin();
            self.fold(inbound);
            self.gone_out(waited);
        }
    }

    /// How far another host's clock is ahead of this one's in ns, and how far that may be off.
    pub fn clock_offset(&self, host: &Name) -> Option<(i64, qfabric_types::Nanos)> {
        self.links.get(host)?.clock.offset()
    }
}
