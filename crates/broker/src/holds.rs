//! The book of one host for joint contracts: holds and commitments of whole vectors of resources.
//!
//! ```text
//!   hold ──> held ── commit ──> committed ── grow ──> committed, and an upgrade is held
//!             │                    │ └── commit (renewal), free_upgrade ──┘
//!             └── release, or the time is over ──> free
//! ```
//! A hold takes an amount of every resource in one step, or nothing. No entry waits for another one, so the cycle of
//! QualMan's Figure 6 cannot occur; and every entry has an end, so that nothing leaks if its initiator crashes.
//!
//! The book keeps identities, times and amounts; [`JointBrokers`] hold the amounts. A daemon's brokers are the real ones;
//! [`CountedBrokers`] count. So a simulation runs the book of the daemon.
//! Source: QualMan §2.3. Departure: the paper lets a reservation wait for resources and avoids or detects deadlocks.

mod brokers;
mod counted;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Owner, Resource, Resources};

use crate::Deadlines;
pub use brokers::{HoldBound, HoldError, HoldHolder, HoldRefusal, JointBrokers, Lack};
pub use counted::{CountedBrokers, CountedHolder, UserCaps};

/// A request for a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRequest {
    pub id: JointId,
    /// The user and group whose maxima count.
    pub owner: Owner,
    pub wanted: Resources,
    /// Smallest amounts to hold; no component is larger than in `wanted`.
    pub minimum: Resources,
    /// When the hold ends by itself.
    pub until: Instant,
}

/// There is no entry of this identity, its time was over, or the brokers hold its amounts no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is held for this contract")]
pub struct NotHeld;

/// One contract in the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldContract<H> {
    /// What the brokers know it by.
    pub holder: H,
    pub owner: Owner,
    wanted: Resources,
    amount: Resources,
    /// When the contract is free without another message.
    pub until: Instant,
    /// Whether the amounts are committed; otherwise they are only held.
    pub is_committed: bool,
    /// The whole vector with a held upgrade, and the end of the upgrade.
    upgrade: Option<(Resources, Instant)>,
}

impl<H> HeldContract<H> {
    /// What the brokers hold for the contract, with a held upgrade.
    pub fn held(&self) -> &Resources {
        self.upgrade.as_ref().map_or(&self.amount, |(whole, _)| whole)
    }

    /// Whether it is committed with less than was wanted.
    pub fn is_partial(&self) -> bool {
        self.is_committed && !self.amount.covers(&self.wanted)
    }

    /// What would be free if the contract held no more than is committed.
    fn uncommitted(&self, resource: &Resource) -> u64 {
        let committed = if self.is_committed { self.amount.units(resource) } else { 0 };
        self.held().units(resource).saturating_sub(committed)
    }

    fn next_end(&self) -> Instant {
        self.upgrade.as_ref().map_or(self.until, |(_, until)| self.until.min(*until))
    }
}

/// The holds and commitments of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds<B: JointBrokers = CountedBrokers> {
    brokers: B,
    entries: BTreeMap<JointId, HeldContract<B::Holder>>,
    ends: Deadlines<JointId>,
    partial: usize,
    expired: u64,
}

impl Holds {
    /// An empty book of brokers that count. A link that `capacity` does not name has no capacity.
    pub fn new(capacity: Resources, caps: UserCaps) -> Holds {
        Holds::over(CountedBrokers::new(capacity, caps))
    }

    /// The amount of each resource that is neither held nor committed.
    pub fn free(&self) -> Resources {
        self.brokers.free()
    }

    /// Closes a resource for a moment: see [`CountedBrokers::close`].
    pub fn close(&mut self, resource: &Resource) {
        self.brokers.close(resource);
    }

    /// Panics unless the sums are those of the entries and within capacity and maxima; for tests.
    pub fn check(&self) {
        self.brokers.check(self.entries.values().map(|entry| &entry.holder));
        assert_eq!(self.entries.values().filter(|entry| entry.is_partial()).count(), self.partial);
        assert_eq!(self.entries.values().map(HeldContract::next_end).min(), self.next_wakeup());
    }
}

impl<B: JointBrokers> Holds<B> {
    /// An empty book over the brokers of a host.
    pub fn over(brokers: B) -> Holds<B> {
        Holds { brokers, entries: BTreeMap::new(), ends: Deadlines::default(), partial: 0, expired: 0 }
    }

    /// The brokers, for what they are told about a contract before it is held.
    pub fn brokers_mut(&mut self) -> &mut B {
        &mut self.brokers
    }

    /// Holds as much as is free of each resource, up to the wanted amount. Replaces an earlier entry of the same
    /// identity, which is gone even if the new one is refused.
    ///
    /// # Errors
    /// The first resource of which less than the minimum is free.
    pub fn hold(&mut self, request: HoldRequest) -> Result<Resources, HoldError> {
        self.release(&request.id);
        let HoldRequest { id, owner, wanted, minimum, until } = request;
        let (mut holder, mut amount) = (self.brokers.holder(&id, owner), Resources::default());
        for (resource, asked) in wanted.iter() {
            let least = minimum.units(&resource);
            match self.brokers.set(&mut holder, &resource, asked.units(), least) {
                Ok(units) => amount.put(&resource, units),
                Err(Lack::Short { .. }) if least == 0 => {}
                Err(lack) => {
                    self.brokers.free(holder);
                    return Err(self.refusal(owner, resource, [asked.units(), least], lack));
                }
            }
        }
        let granted = amount.clone();
        let entry = HeldContract { holder, owner, wanted, amount, until, is_committed: false, upgrade: None };
        self.ends.set(&id, Some(until));
        self.entries.insert(id, entry);
        Ok(granted)
    }

    /// Commits the accepted part of a hold until a later time; the rest is free at once. A commitment is renewed:
    /// it never shrinks, and it takes the held upgrade if the accepted vector is larger than it is.
    ///
    /// # Errors
    /// Nothing is held, its time is over, or the brokers hold it no more: then the caller releases the entry.
    pub fn commit(
        &mut self,
        id: &JointId,
        accepted: &Resources,
        until: Instant,
        now: Instant,
    ) -> Result<Resources, NotHeld> {
        self.end_upgrade(id, now);
        let (brokers, entries) = (&self.brokers, &mut self.entries);
        let is_held = |entry: &&mut HeldContract<_>| entry.until > now && brokers.is_whole(&entry.holder);
        let entry = entries.get_mut(id).filter(is_held).ok_or(NotHeld)?;
        let was_partial = entry.is_partial();
        let was_committed = std::mem::replace(&mut entry.is_committed, true);
        entry.until = until;
        let mut surplus = None;
        if !was_committed || !entry.amount.covers(accepted) {
            let (held, kept) = (entry.held().clone(), entry.held().least(accepted));
            let base = if was_committed { entry.amount.minus(&kept) } else { Resources::default() };
            entry.amount = kept.plus(&base).expect("the links of what was wanted");
            entry.upgrade = None;
            surplus = Some(held);
        }
        let (amount, is_partial) = (entry.amount.clone(), entry.is_partial());
        self.ends.set(id, Some(entry.next_end()));
        self.partial = self.partial + usize::from(is_partial) - usize::from(was_partial);
        if let Some(held) = surplus {
            self.lower(id, &held, &amount);
        }
        Ok(amount)
    }

    /// Holds more for a commitment that has less than was wanted. Returns the whole new vector; `None` if there is
    /// no such commitment, an upgrade is held already, or nothing more is free.
    pub fn grow(&mut self, id: &JointId, until: Instant, now: Instant) -> Option<Resources> {
        self.end_upgrade(id, now);
        let entry = self.entries.get_mut(id).filter(|entry| entry.is_committed && entry.upgrade.is_none())?;
        let mut whole = entry.amount.clone();
        for (resource, missing) in entry.wanted.minus(&entry.amount).iter() {
            let has = entry.amount.units(&resource);
            if let Ok(units) = self.brokers.set(&mut entry.holder, &resource, has + missing.units(), has + 1) {
                whole.put(&resource, units);
            }
        }
        entry.upgrade = (whole != entry.amount).then_some((whole, until));
        self.ends.set(id, Some(entry.next_end()));
        entry.upgrade.as_ref().map(|(whole, _)| whole.clone())
    }

    /// Frees a held upgrade that was declined, before its time is over. Does nothing if there is none.
    pub fn free_upgrade(&mut self, id: &JointId) {
        self.end_upgrade(id, Instant::NEVER);
    }

    /// Frees an entry. Returns whether there was one.
    pub fn release(&mut self, id: &JointId) -> bool {
        let Some(entry) = self.entries.remove(id) else { return false };
        self.ends.set(id, None);
        self.partial -= usize::from(entry.is_partial());
        self.brokers.free(entry.holder);
        true
    }

    /// Frees all entries and upgrades whose time is over. Returns the identities of the entries.
    pub fn expire(&mut self, now: Instant) -> Vec<JointId> {
        let mut over = self.ends.due(now);
        over.iter().for_each(|id| self.end_upgrade(id, now));
        over.retain(|id| self.entries.get(id).is_some_and(|entry| entry.until <= now));
        over.iter().for_each(|id| _ = self.release(id));
        self.expired += over.len() as u64;
        over
    }

    /// When [`Holds::expire`] is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.ends.next()
    }

    /// The committed amount of an entry; `None` if it is only held, or not known.
    pub fn committed(&self, id: &JointId) -> Option<&Resources> {
        self.entries.get(id).filter(|entry| entry.is_committed).map(|entry| &entry.amount)
    }

    pub fn get(&self, id: &JointId) -> Option<&HeldContract<B::Holder>> {
        self.entries.get(id)
    }

    /// Whether the brokers still hold everything of an entry.
    pub fn is_whole(&self, id: &JointId) -> bool {
        self.entries.get(id).is_some_and(|entry| self.brokers.is_whole(&entry.holder))
    }

    /// All entries, by identity.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&JointId, &HeldContract<B::Holder>)> {
        self.entries.iter()
    }

    /// Whether a commitment has less than was wanted.
    pub fn is_partial(&self) -> bool {
        self.partial > 0
    }

    /// Number of entries whose time was over.
    pub fn expired(&self) -> u64 {
        self.expired
    }

    fn end_upgrade(&mut self, id: &JointId, now: Instant) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let Some((whole, _)) = entry.upgrade.take_if(|(_, until)| *until <= now) else { return };
        let amount = entry.amount.clone();
        self.ends.set(id, Some(entry.until));
        self.lower(id, &whole, &amount);
    }

    /// Lowers the amounts of an entry. A broker that has lost an amount has nothing to lower.
    fn lower(&mut self, id: &JointId, from: &Resources, to: &Resources) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        for (resource, _) in from.minus(to).iter() {
            let units = to.units(&resource);
            // A decrease is never refused.
            let _ = self.brokers.set(&mut entry.holder, &resource, units, units);
        }
    }

    /// A shortage is transient if the minimum fits after the end of all holds that count under the bound and are not
    /// committed. Commitments, and what others than contracts have, do not end soon.
    fn refusal(&self, owner: Owner, resource: Resource, [asked, minimum]: [u64; 2], lack: Lack) -> HoldError {
        let (free, largest, bound, others) = match lack {
            Lack::Short { free, largest, bound, others } => (free, largest, bound, others),
            Lack::NoBroker => return HoldError::NoBroker(resource),
            Lack::Ending => return HoldError::Ending,
        };
        let counted = |bound: HoldBound| -> u64 {
            let counted = self.entries.values().filter(|entry| self.counts(bound, owner, entry));
            counted.map(|entry| entry.uncommitted(&resource)).sum()
        };
        let fits = |units: u64, bound| units.saturating_add(counted(bound)) >= minimum;
        let is_transient = match bound {
            HoldBound::Number { .. } => counted(bound) > 0,
            _ => fits(largest, bound) && fits(free, HoldBound::Free),
        };
        let holders = self.holders(owner, &resource, bound);
        let [asked, minimum, free, largest] = [asked, minimum, free, largest].map(|units| resource.amount(units));
        let others = (bound == HoldBound::Free).then(|| resource.amount(others));
        let refusal = HoldRefusal { resource, asked, minimum, free, largest, bound, is_transient, holders, others };
        HoldError::Short(Box::new(refusal))
    }

    /// Whether what the entry holds counts under the bound, beside a contract of `owner`.
    fn counts(&self, bound: HoldBound, owner: Owner, entry: &HeldContract<B::Holder>) -> bool {
        match bound {
            HoldBound::Free => true,
            HoldBound::User { .. } | HoldBound::Number { .. } => owner.uid == entry.owner.uid,
            HoldBound::Group { gid, .. } => self.brokers.may_count_for(&entry.holder, gid),
        }
    }

    /// What the contracts of each initiator hold under the bound, the largest amount first.
    fn holders(&self, owner: Owner, resource: &Resource, bound: HoldBound) -> Vec<HoldHolder> {
        let mut held = BTreeMap::<&Name, u64>::new();
        for (id, entry) in self.entries.iter().filter(|(_, entry)| self.counts(bound, owner, entry)) {
            let sum = held.entry(&id.host).or_default();
            *sum = sum.saturating_add(entry.held().units(resource));
        }
        let mut held: Vec<(&Name, u64)> = held.into_iter().filter(|(_, units)| *units > 0).collect();
        held.sort_by_key(|(_, units)| Reverse(*units));
        held.truncate(HoldRefusal::MOST_HOLDERS);
        let holder = |(initiator, units): (&Name, u64)| HoldHolder {
            initiator: initiator.clone(),
            amount: resource.amount(units),
        };
        held.into_iter().map(holder).collect()
    }
}
