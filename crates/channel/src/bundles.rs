//! Frames that wait for other frames to the same host, to go there in one.
//!
//! ```text
//! frame of a source here ──┬── no slack, no combiner ─────────────> Output::Send
//!                          ├──> pending, for its receiver ──┐
//! item of another host ────┴──> pending, for the combiner ──┴─ time, size or a frame without slack ──> one bundle
//! ```
//! Frames of one source to one host keep their order, because all of them go through the same queue: a frame that may not
//! wait takes the frames before it along. Nothing is dropped here: a queue that is full is sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use crate::exit::Exit;
use crate::output::Destination;
use crate::wire::{Item, Kind, Onward, Reader, write_item};
use crate::{Lane, Limits};

/// Combiners that an item may pass.
const MOST_HOPS: u8 = 4;
/// The part of the slack that a frame waits at its own host before it goes to the combiner: a divisor.
const OWN_PART: u64 = 4;

/// This host reads bundles: a bit of the abilities that a host states with its record.
const READS_BUNDLES: u8 = 1;
/// This host takes private messages: another bit.
const HEARS_PRIVATE: u8 = 2;

/// The time for which a frame may wait, from `now` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub now: Instant,
    pub slack: Nanos,
}

impl Wait {
    /// The frame may not wait.
    pub(crate) const NONE: Wait = Wait { now: Instant::ZERO, slack: Nanos::ZERO };

    /// The time at which the frame has to leave; `None`: at once.
    fn until(self) -> Option<Instant> {
        (self.slack > Nanos::ZERO).then(|| self.now + self.slack)
    }
}

/// A frame on its way through this host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parcel<'a> {
    /// The host that wrote the frame; `None`: this one.
    pub origin: Option<&'a Name>,
    pub hops: u8,
    pub wait: Wait,
    pub frame: &'a [u8],
}

/// The bundles that have not been sent yet.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    /// The host that combines the frames of this one with those of others.
    combiner: Option<Name>,
    /// Whether this host reads bundles.
    pub reads: bool,
    /// The hosts that are present and read bundles.
    able: BTreeMap<Name, Arc<Name>>,
    pending: BTreeMap<Arc<Name>, Pending>,
    /// Bytes of all pending items.
    bytes: usize,
    /// Memory for the frame and for the item that are being written.
    frame: Vec<u8>,
    item: Vec<u8>,
}

/// The items for one host.
#[derive(Debug)]
struct Pending {
    /// The earliest time at which one of them has to leave.
    until: Instant,
    items: Vec<u8>,
}

impl Bundles {
    /// `reads`: this host sends and reads bundles.
    pub(crate) fn new(combiner: Option<&Name>, reads: bool) -> Bundles {
        Bundles { combiner: combiner.cloned(), reads, ..Bundles::default() }
    }

    /// Whether frames of this slack have to pass here: they may wait, others wait before them, or a combiner has them.
    pub(crate) fn concern(&self, slack: Nanos) -> bool {
        slack > Nanos::ZERO || !self.pending.is_empty() || self.combiner().is_some()
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.until).min()
    }

    /// The combiner, if it is present and reads bundles.
    fn combiner(&self) -> Option<&Arc<Name>> {
        self.able.get(self.combiner.as_ref()?)
    }

    fn room(&self, to: &Name) -> usize {
        Limits::BUNDLE.saturating_sub(self.pending.get(to).map_or(0, |pending| pending.items.len()))
    }
}

impl Exit {
    /// What this host states of itself.
    pub(crate) fn abilities(&self) -> u8 {
        let private = if self.hears_private { HEARS_PRIVATE } else { 0 };
        private | if self.bundles.reads { READS_BUNDLES } else { 0 }
    }

    /// A host that is present states what it can do.
    pub(crate) fn learn_abilities(&mut self, host: &Name, abilities: u8) {
        if abilities & HEARS_PRIVATE != 0 {
            self.confidants.insert(host.clone());
        }
        if abilities & READS_BUNDLES == 0 || !self.bundles.reads || self.bundles.able.contains_key(host) {
            return;
        }
        if self.bundles.combiner.as_ref() == Some(host) {
            // Frames that wait for their receivers must not arrive behind those that go through the combiner from now on.
            self.flush_bundles(None);
        }
        self.bundles.able.insert(host.clone(), Arc::new(host.clone()));
    }

    /// Frames that wait for the combiner before go without it; `None`: there is no combiner from now on.
    pub(crate) fn set_combiner(&mut self, combiner: Option<&Name>) {
        let before = std::mem::replace(&mut self.bundles.combiner, combiner.cloned());
        if let Some(before) = before.filter(|before| Some(before) != combiner) {
            self.go_without(&before, true);
        }
    }

    /// The host is gone, and with it the items for it. Those that it would have passed on go without it.
    pub(crate) fn forget_host(&mut self, host: &Name) {
        self.confidants.remove(host);
        self.bundles.able.remove(host);
        self.go_without(host, false);
    }

    /// Sends the items that wait for a host and that it would have passed on without it, at once. `is_there`: the host
    /// gets the items for itself.
    fn go_without(&mut self, host: &Name, is_there: bool) {
        let Some(waiting) = self.bundles.pending.remove(host) else { return };
        self.bundles.bytes -= waiting.items.len();
        let mut items = Reader(&waiting.items);
        while let Ok(Some(Item { origin, onward, frame })) = Item::next(&mut items) {
            let (hops, to) = match onward {
                Some(Onward { hops, to, .. }) => (hops, to),
                None if is_there => (0, vec![host.clone()]),
                None => continue,
            };
            self.pass(to.iter(), Parcel { origin: origin.as_ref(), hops, wait: Wait::NONE, frame });
        }
    }

    /// Sends a frame of a Q-channel to hosts, at once or with others. `write` appends it.
    pub(crate) fn ship(&mut self, to: &[&Name], wait: Wait, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = std::mem::take(&mut self.bundles.frame);
        frame.clear();
        write(&mut frame);
        self.pass(to.iter().copied(), Parcel { origin: None, hops: 0, wait, frame: &frame });
        self.bundles.frame = frame;
    }

    /// Sends a frame of this host or of another one towards its receivers.
    pub(crate) fn pass<'n>(&mut self, to: impl Iterator<Item = &'n Name>, parcel: Parcel<'_>) {
        let combiner = self.bundles.combiner().filter(|_| parcel.hops < MOST_HOPS).cloned();
        let mut onward = Vec::new();
        for host in to {
            let able = self.bundles.able.get(host).cloned();
            match (able, &combiner) {
                (None, _) if parcel.origin.is_none() => {
                    let to = Destination::Host(Arc::new(host.clone()));
                    self.send_raw(to, Lane::Control, parcel.frame);
                }
                (None, _) => self.counts.undelivered += 1,
                (Some(able), Some(combiner)) if able != *combiner => onward.push(able),
                (Some(able), _) => self.hand_over(&able, parcel),
            }
        }
        if let Some(combiner) = combiner {
            let of_slack = |slack: Nanos| Nanos::new(slack.get() / OWN_PART);
            let own = of_slack(parcel.wait.slack);
            let rest = Nanos::new(parcel.wait.slack.get() - own.get());
            for some in onward.chunks(Limits::BUNDLE_HOSTS) {
                let names = some.iter().map(|name| &**name);
                let until = Wait { slack: own, ..parcel.wait }.until();
                self.put(&combiner, until, |items| {
                    write_item(items, parcel.origin, Some((rest, parcel.hops + 1, names)), parcel.frame);
                });
            }
        }
    }

    /// Sends a frame to its receiver, without a bundle if nothing else goes there with it.
    fn hand_over(&mut self, to: &Arc<Name>, parcel: Parcel<'_>) {
        let until = parcel.wait.until();
        if until.is_none() && parcel.origin.is_none() && !self.bundles.pending.contains_key(to) {
            return self.send_raw(Destination::Host(to.clone()), Lane::Control, parcel.frame);
        }
        let onward = None::<(Nanos, u8, std::iter::Empty<&Name>)>;
        self.put(to, until, |items| write_item(items, parcel.origin, onward, parcel.frame));
    }

    /// Adds an item to those for a host. `until`: the time at which it has to leave; `None`: at once.
    fn put(&mut self, to: &Arc<Name>, until: Option<Instant>, write: impl FnOnce(&mut Vec<u8>)) {
        let mut item = std::mem::take(&mut self.bundles.item);
        item.clear();
        write(&mut item);
        if item.len() > self.bundles.room(to) {
            self.flush_bundle(to);
        }
        let bundles = &mut self.bundles;
        let fresh = || Pending { until: until.unwrap_or(Instant::ZERO), items: Vec::new() };
        let pending = bundles.pending.entry(to.clone()).or_insert_with(fresh);
        pending.until = pending.until.min(until.unwrap_or(Instant::ZERO));
        pending.items.extend_from_slice(&item);
        bundles.bytes += item.len();
        bundles.item = item;
        if until.is_none() {
            self.flush_bundle(to);
        } else if self.bundles.bytes > Limits::BUNDLES {
            self.flush_bundles(None);
        }
    }

    /// Sends the bundles that are due at `now`; `None`: all.
    pub(crate) fn flush_bundles(&mut self, now: Option<Instant>) {
        if self.bundles.pending.is_empty() {
            return;
        }
        let due = self.bundles.pending.iter().filter(|(_, pending)| now.is_none_or(|now| pending.until <= now));
        for host in due.map(|(host, _)| host.clone()).collect::<Vec<_>>() {
            self.flush_bundle(&host);
        }
    }

    fn flush_bundle(&mut self, to: &Arc<Name>) {
        let Some(pending) = self.bundles.pending.remove(to) else { return };
        self.bundles.bytes -= pending.items.len();
        self.counts.bundles_out += 1;
        self.send(Destination::Host(to.clone()), Lane::Control, Kind::Bundle, |writer| writer.bytes(&pending.items));
    }
}
