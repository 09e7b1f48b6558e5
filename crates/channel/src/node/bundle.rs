//! Bundles that arrive: items for this host are read, and items for other hosts go onward.

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use super::Node;
use crate::bundles::{Parcel, Wait};
use crate::membership::Presence;
use crate::wire::{self, Item, Kind, Malformed, Onward, Reader};

impl Node {
    /// Reads the items of a bundle in order. Items before an invalid one are valid.
    pub(super) fn unpack(&mut self, from: &Name, reader: &mut Reader<'_>, now: Instant) -> Result<(), Malformed> {
        if !self.exit.bundles.reads {
            return Err(Malformed);
        }
        let is_believed = self.config.policy.relays(from);
        while let Some(item) = Item::next(reader)? {
            if item.origin.is_some() && !is_believed {
                self.exit.counts.forbidden += 1;
                continue;
            }
            let origin = item.origin.as_ref().unwrap_or(from);
            match &item.onward {
                Some(onward) => self.send_onward(origin, onward, item.frame, now),
                None if *origin == self.config.host => return Err(Malformed),
                None => self.arrive_combined(origin, item.frame, now)?,
            }
        }
        Ok(())
    }

    /// A frame that came in a bundle. Only frames that belong to events do, of hosts that are known already.
    fn arrive_combined(&mut self, from: &Name, frame: &[u8], now: Instant) -> Result<(), Malformed> {
        self.exit.counts.combined += 1;
        let mut reader = Reader(frame);
        let prefix = wire::read_prefix(&mut reader).map_err(|_| Malformed)?;
        if !matches!(prefix.kind, Kind::Event | Kind::Mark) {
            return Err(Malformed);
        }
        if self.members.presence(from, prefix.incarnation) != Presence::Known {
            self.exit.counts.stranger += 1;
            return Ok(());
        }
        self.handle(from, prefix.kind, reader, now)
    }

    /// Passes an item on for another host, if this host is one that does.
    fn send_onward(&mut self, origin: &Name, onward: &Onward, frame: &[u8], now: Instant) {
        if !self.config.policy.relays(&self.config.host) {
            self.exit.counts.forbidden += 1;
            return;
        }
        let (own, slack) = (&self.config.host, onward.slack);
        let to = onward.to.iter().filter(|host| *host != own && *host != origin);
        self.exit.counts.passed_on += onward.to.len() as u64;
        let wait = Wait { now, slack };
        self.exit.pass(to, Parcel { origin: Some(origin), hops: onward.hops, wait, frame });
    }
}
