//! Sources of other hosts that have left. The change of the record goes on the control lane and overtakes the last
//! events on the other lanes, so these are accepted for some time after it.

use std::collections::BTreeMap;

use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::{Instant, Nanos};

use super::Delivery;
use super::link::{Inbound, Link};
use crate::change::Change;
use crate::exit::Exit;
use crate::{Directory, Limits};

/// The events of a source that has left are accepted for this time. As many bytes as may wait for a host take 35 s at
/// 1 Mbit/s.
const LINGER: Nanos = Nanos::from_millis(60_000);

impl Delivery {
    /// Sources of a host end because of a change of its record; call this before the change is applied. Their accounts
    /// are added to the totals of the sinks: after [`LINGER`], or at once if the host may not send to the channel.
    pub(crate) fn end_sources(
        &mut self,
        directory: &Directory,
        host: &Name,
        change: &Change,
        may_send: impl FnOnce() -> bool,
    ) {
        let Some(link) = self.links.get_mut(host) else { return };
        if let Change::Source(_, id, _) = change {
            // The host's record may have been replaced by an earlier one before.
            link.leaving.remove(&id.0);
            self.left.retain(|(name, number)| *number != id.0 || name != host);
        }
        if !matches!(change, Change::SourceGone(..) | Change::Release(_)) {
            return;
        }
        let Some((id, place)) = change.channel().and_then(|id| Some((id, self.channels.place(id)?))) else { return };
        let numbers: Vec<u32> = if let Change::SourceGone(_, source) = change {
            vec![source.0]
        } else {
            // A source may have left before its welcome arrives, or the other way round.
            let held = directory.host(host).and_then(|record| record.channels.get(id));
            let known = held.into_iter().flat_map(|held| held.sources.keys()).map(|source| source.0);
            let welcomed = link.inbound.iter().filter(|(_, inbound)| inbound.slot == place);
            known.chain(welcomed.map(|(number, _)| *number)).collect()
        };
        if may_send() {
            self.left.extend(numbers.into_iter().map(|number| (host.clone(), number)));
        } else {
            let gone = numbers.into_iter().filter_map(|number| Some((number, link.inbound.remove(&number)?))).collect();
            self.fold(gone);
        }
    }

    /// Sets the end of the sources that have left since the last call.
    pub(super) fn set_ends(&mut self, now: Instant, exit: &mut Exit) {
        let ends = now + LINGER;
        for (host, number) in std::mem::take(&mut self.left) {
            let Some(link) = self.links.get_mut(&host) else { continue };
            link.leaving.entry(number).or_insert(ends);
            if link.leaving.len() > Limits::MEMBERS {
                let gone = link.end_earliest();
                self.fold(gone);
            }
            exit.wake_by(ends);
        }
    }

    /// Makes room for the account of a source, if the host has too many and some of them are of sources that have left.
    pub(super) fn make_room(&mut self, host: &Name, source: u32) {
        let full = |link: &&mut Link| link.inbound.len() >= Limits::MEMBERS && !link.inbound.contains_key(&source);
        if let Some(link) = self.links.get_mut(host).filter(full) {
            let gone = link.end_earliest();
            self.fold(gone);
        }
    }

    /// Ends the sources whose time is over.
    pub(super) fn end_overdue(&mut self, now: Instant) {
        let links = self.links.values_mut().filter(|link| !link.leaving.is_empty());
        let ended = links.map(|link| link.end_leaving(|ends| ends <= now));
        for gone in ended.collect::<Vec<_>>() {
            self.fold(gone);
        }
    }

    /// Ends the sources of hosts that may not send to the channels any more, also those that have left.
    pub(crate) fn end_forbidden(&mut self, is_forbidden: impl Fn(&Name, &ChannelId) -> bool) {
        let Delivery { links, channels, .. } = self;
        let mut ended: Vec<BTreeMap<u32, Inbound>> = Vec::new();
        for (host, link) in links {
            let (gone, stay) = std::mem::take(&mut link.inbound).into_iter().partition(|(_, inbound)| {
                let channel = channels.at(inbound.slot);
                channel.is_some_and(|channel| is_forbidden(host, &channel.id))
            });
            link.inbound = stay;
            ended.push(gone);
        }
        ended.into_iter().for_each(|gone| self.fold(gone));
    }

    /// The earliest end.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.links.values().flat_map(|link| link.leaving.values()).min().copied()
    }
}

impl Link {
    /// Removes the sources that have left and for whose ends `is_over` is true; returns their accounts.
    fn end_leaving(&mut self, is_over: impl Fn(Instant) -> bool) -> BTreeMap<u32, Inbound> {
        let Link { leaving, inbound, .. } = self;
        let mut gone = BTreeMap::new();
        leaving.retain(|number, ends| {
            let is_over = is_over(*ends);
            if is_over {
                gone.extend(inbound.remove(number).map(|inbound| (*number, inbound)));
            }
            !is_over
        });
        gone
    }

    /// Ends the sources that left first; returns their accounts.
    fn end_earliest(&mut self) -> BTreeMap<u32, Inbound> {
        let first = self.leaving.values().min().copied();
        self.end_leaving(|ends| Some(ends) == first)
    }
}
