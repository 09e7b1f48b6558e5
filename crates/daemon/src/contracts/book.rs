//! What this host holds for joint contracts, in its brokers: the verbs of [`qfabric_broker::Holds`] on real resources.

use std::collections::BTreeMap;

use qfabric_broker::{HoldRefusal, HoldRequest, NotHeld};
use qfabric_host::manager::contracts::Reason;
use qfabric_types::api::contracts::{JointHolding, JointId};
use qfabric_types::api::net::HeldRateId;
use qfabric_types::{Instant, LinkEnd, Owner, Resource, Resources};

use super::brokers::{Brokers, Holder, Lack};

struct Entry {
    holder: Holder,
    wanted: Resources,
    amount: Resources,
    until: Instant,
    is_committed: bool,
    /// The whole vector with a held upgrade, and the end of the upgrade.
    upgrade: Option<(Resources, Instant)>,
}

impl Entry {
    fn held(&self) -> &Resources {
        self.upgrade.as_ref().map_or(&self.amount, |(whole, _)| whole)
    }

    /// What would be free if no contract held more than is committed.
    fn uncommitted(&self, resource: &Resource) -> u64 {
        let committed = if self.is_committed { self.amount.units(resource) } else { 0 };
        self.held().units(resource).saturating_sub(committed)
    }
}

/// The holds and commitments of this host.
pub(super) struct Book {
    brokers: Brokers,
    entries: BTreeMap<JointId, Entry>,
    /// Holds and commitments whose time was over.
    pub expired: u64,
}

impl Book {
    pub(super) fn new(brokers: Brokers) -> Book {
        Book { brokers, entries: BTreeMap::new(), expired: 0 }
    }

    /// Holds the whole vector, each amount between its minimum and what was wanted, or nothing. Replaces an earlier
    /// entry of the same identity.
    pub(super) fn hold(&mut self, request: HoldRequest, owner: Owner, now: Instant) -> Result<Resources, Reason> {
        self.release(&request.id, now);
        let HoldRequest { id, wanted, minimum, until, .. } = request;
        let (mut holder, mut amount) = (Holder::new(id.clone(), owner), Resources::default());
        for (resource, asked) in wanted.iter() {
            let least = minimum.units(&resource);
            match self.brokers.set(&mut holder, &resource, asked.units(), least) {
                Ok(units) => set(&mut amount, &resource, units),
                Err(Lack::Short { .. }) if least == 0 => {}
                Err(lack) => {
                    self.brokers.free(&holder);
                    return Err(self.reason(resource, asked.units(), least, lack));
                }
            }
        }
        let entry = Entry { holder, wanted, amount: amount.clone(), until, is_committed: false, upgrade: None };
        self.entries.insert(id, entry);
        Ok(amount)
    }

    /// Commits the accepted part of a hold until a later time, or renews a commitment, which never shrinks.
    pub(super) fn commit(
        &mut self,
        id: &JointId,
        accepted: &Resources,
        until: Instant,
        now: Instant,
    ) -> Result<Resources, NotHeld> {
        self.end_upgrade(id, now);
        let entry = self.entries.get_mut(id).filter(|entry| entry.until > now).ok_or(NotHeld)?;
        if !self.brokers.has_rates(&entry.holder) {
            return Err(NotHeld);
        }
        let was_committed = std::mem::replace(&mut entry.is_committed, true);
        entry.until = until;
        if was_committed && entry.amount.covers(accepted) {
            return Ok(entry.amount.clone());
        }
        let kept = entry.held().least(accepted);
        let kept = if was_committed { kept.plus(&entry.amount.minus(&kept)).unwrap_or(kept) } else { kept };
        let held = entry.held().clone();
        (entry.amount, entry.upgrade) = (kept.clone(), None);
        self.lower(id, &held, &kept);
        Ok(kept)
    }

    /// Holds more for a commitment that has less than was wanted. Returns the whole new vector; `None`: nothing more is
    /// free.
    pub(super) fn grow(&mut self, id: &JointId, until: Instant, now: Instant) -> Option<Resources> {
        self.end_upgrade(id, now);
        let entry = self.entries.get_mut(id).filter(|entry| entry.is_committed && entry.upgrade.is_none())?;
        let mut whole = entry.amount.clone();
        for (resource, missing) in entry.wanted.minus(&entry.amount).iter() {
            let has = entry.amount.units(&resource);
            if let Ok(units) = self.brokers.set(&mut entry.holder, &resource, has + missing.units(), has + 1) {
                set(&mut whole, &resource, units);
            }
        }
        entry.upgrade = (whole != entry.amount).then_some((whole, until));
        entry.upgrade.as_ref().map(|(whole, _)| whole.clone())
    }

    /// Frees an entry.
    pub(super) fn release(&mut self, id: &JointId, now: Instant) {
        let Some(entry) = self.entries.remove(id) else { return };
        self.expired += u64::from(entry.until <= now);
        self.brokers.free(&entry.holder);
    }

    /// Frees the entries and upgrades whose time is over. The participant releases them too; here nothing leaks if its
    /// order is lost.
    pub(super) fn expire(&mut self, now: Instant) {
        let ids: Vec<JointId> = self.entries.keys().cloned().collect();
        for id in ids {
            self.end_upgrade(&id, now);
            if self.entries.get(&id).is_some_and(|entry| entry.until <= now) {
                self.release(&id, now);
            }
        }
    }

    /// When [`Book::expire`] is due.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let upgrades = self.entries.values().filter_map(|entry| entry.upgrade.as_ref().map(|(_, until)| *until));
        self.entries.values().map(|entry| entry.until).chain(upgrades).min()
    }

    /// Whether a commitment has less than was wanted.
    pub(super) fn is_partial(&self) -> bool {
        self.entries.values().any(|entry| entry.is_committed && !entry.amount.covers(&entry.wanted))
    }

    pub(super) fn holdings(&self, now: Instant) -> Vec<JointHolding> {
        let holding = |(id, entry): (&JointId, &Entry)| JointHolding {
            initiator: id.host.clone(),
            uid: entry.holder.owner.uid,
            resources: entry.held().clone(),
            in_force: entry.is_committed,
            left_ns: entry.until.since(now),
        };
        self.entries.iter().map(holding).collect()
    }

    /// The rate that a contract in force has on a link.
    pub(super) fn rate(&self, id: &JointId, end: &LinkEnd) -> Option<HeldRateId> {
        self.entries.get(id).filter(|entry| entry.is_committed)?.holder.links.get(end).copied()
    }

    fn end_upgrade(&mut self, id: &JointId, now: Instant) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        if let Some((whole, _)) = entry.upgrade.take_if(|(_, until)| *until <= now) {
            let amount = entry.amount.clone();
            self.lower(id, &whole, &amount);
        }
    }

    /// Lowers the amounts of an entry.
    fn lower(&mut self, id: &JointId, from: &Resources, to: &Resources) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        for (resource, _) in from.minus(to).iter() {
            let units = to.units(&resource);
            if let Err(lack) = self.brokers.set(&mut entry.holder, &resource, units, units) {
                tracing::warn!(contract = %id, %resource, ?lack, "a broker keeps more for the contract than it has");
            }
        }
    }

    fn reason(&self, resource: Resource, asked: u64, minimum: u64, lack: Lack) -> Reason {
        let (free, largest) = match lack {
            Lack::Short { free, largest } => (free, largest),
            Lack::NoBroker => return Reason::NotBrokered(resource),
            Lack::Ending => return Reason::Silent,
        };
        let held: u64 = self.entries.values().map(|entry| entry.uncommitted(&resource)).sum();
        let amount = |units| resource.amount(units);
        Reason::Short(HoldRefusal {
            asked: amount(asked),
            minimum: amount(minimum),
            free: amount(free),
            largest: amount(largest),
            is_transient: largest.saturating_add(held) >= minimum,
            resource,
        })
    }
}

/// Sets a component that another valid vector names.
fn set(vector: &mut Resources, resource: &Resource, units: u64) {
    if units > 0 {
        vector.set_units(resource, units).expect("the links of a valid vector");
    }
}
