//! The book of one host for joint contracts: holds and commitments of whole vectors of resources.
//!
//! ```text
//!   hold ──> held ── commit ──> committed ── grow ──> committed, and an upgrade is held
//!             │                    │ └── commit (renewal) ──┘
//!             └── release, or the time is over ──> free
//! ```
//! A hold takes an amount of every resource in one step, or nothing. No entry waits for another one, so the cycle of
//! QualMan's Figure 6 cannot occur; and every entry has an end, so that nothing leaks if its initiator crashes.
//! Source: QualMan §2.3. Departure: the paper lets a reservation wait for resources and avoids or detects deadlocks.

use std::collections::BTreeMap;

use qfabric_types::api::contracts::JointId;
use qfabric_types::{Amount, Instant, Resource, Resources};

/// One user's part of what is promised; a user without an entry has no maximum.
pub type UserCaps = BTreeMap<u32, Resources>;

/// A request for a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRequest {
    pub id: JointId,
    /// The user whose maximum counts.
    pub uid: u32,
    pub wanted: Resources,
    /// Smallest amounts to hold; no component is larger than in `wanted`.
    pub minimum: Resources,
    /// When the hold ends by itself.
    pub until: Instant,
}

/// A resource of which less than the minimum is free. Nothing was held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: asked for {asked}, at least {minimum}; {free} is free, and {largest} would fit")]
pub struct HoldRefusal {
    pub resource: Resource,
    pub asked: Amount,
    pub minimum: Amount,
    /// The free amount on this host.
    pub free: Amount,
    /// The largest amount that would be granted: less than `free` if the user's maximum is the limit.
    pub largest: Amount,
    /// Whether the minimum would fit if all holds ended that are not committed: a later attempt may succeed.
    pub is_transient: bool,
}

/// There is no entry of this identity, or its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is held for this contract")]
pub struct NotHeld;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    uid: u32,
    wanted: Resources,
    amount: Resources,
    until: Instant,
    is_committed: bool,
    /// Held beyond `amount` for an upgrade.
    upgrade: Option<(Resources, Instant)>,
}

impl Entry {
    fn committed(&self, resource: &Resource) -> u64 {
        if self.is_committed { self.amount.units(resource) } else { 0 }
    }

    fn total(&self, resource: &Resource) -> u64 {
        self.amount.units(resource) + self.upgrade.as_ref().map_or(0, |(more, _)| more.units(resource))
    }
}

/// The sums over all entries, or over those of one user. Absent resources are zero.
type Sums = BTreeMap<Resource, u64>;

/// The holds and commitments of one host, within its capacity and the maxima of its users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    capacity: Resources,
    caps: UserCaps,
    entries: BTreeMap<JointId, Entry>,
    promised: Sums,
    by_user: BTreeMap<u32, Sums>,
}

impl Holds {
    /// An empty book. A link that `capacity` does not name has no capacity.
    pub fn new(capacity: Resources, caps: UserCaps) -> Holds {
        Holds { capacity, caps, ..Holds::default() }
    }

    /// Holds as much as is free of each resource, up to the wanted amount. Replaces an earlier entry of the same
    /// identity, which is gone even if the new one is refused.
    ///
    /// # Errors
    /// The first resource of which less than the minimum is free.
    pub fn hold(&mut self, request: HoldRequest) -> Result<Resources, HoldRefusal> {
        self.release(&request.id);
        let HoldRequest { id, uid, wanted, minimum, until } = request;
        let mut amount = Resources::default();
        for (resource, asked) in wanted.iter() {
            let granted = self.grantable(uid, &resource).min(asked.units());
            if granted < minimum.units(&resource) {
                return Err(self.shortage(uid, resource, asked, &minimum));
            }
            set(&mut amount, &resource, granted);
        }
        let entry = Entry { uid, wanted, amount: amount.clone(), until, is_committed: false, upgrade: None };
        self.book(uid, &amount);
        self.entries.insert(id, entry);
        Ok(amount)
    }

    /// Commits the accepted part of a hold until a later time; the rest is free at once. A commitment is renewed:
    /// it never shrinks, and it takes the held upgrade if the accepted vector is larger than it is.
    ///
    /// # Errors
    /// Nothing is held, or its time is over.
    pub fn commit(
        &mut self,
        id: &JointId,
        accepted: &Resources,
        until: Instant,
        now: Instant,
    ) -> Result<Resources, NotHeld> {
        self.end_upgrade(id, now);
        let entry = self.entries.get_mut(id).filter(|entry| entry.until > now).ok_or(NotHeld)?;
        let (uid, was_committed) = (entry.uid, entry.is_committed);
        (entry.until, entry.is_committed) = (until, true);
        let (base, addition) = match was_committed {
            true if entry.amount.covers(accepted) => return Ok(entry.amount.clone()),
            true => (entry.amount.clone(), entry.upgrade.take().map(|(more, _)| more).unwrap_or_default()),
            false => (Resources::default(), entry.amount.clone()),
        };
        let kept = addition.least(&accepted.minus(&base));
        let amount = base.plus(&kept).expect("the links of what was wanted");
        entry.amount = amount.clone();
        self.unbook(uid, &addition.minus(&kept));
        Ok(amount)
    }

    /// Holds more for a commitment that has less than was wanted. Returns the whole new vector; `None` if there is
    /// no such commitment, an upgrade is held already, or nothing more is free.
    pub fn grow(&mut self, id: &JointId, until: Instant, now: Instant) -> Option<Resources> {
        self.end_upgrade(id, now);
        let entry = self.entries.get(id).filter(|entry| entry.is_committed && entry.upgrade.is_none())?;
        let (uid, missing) = (entry.uid, entry.wanted.minus(&entry.amount));
        let mut more = Resources::default();
        for (resource, amount) in missing.iter() {
            set(&mut more, &resource, self.grantable(uid, &resource).min(amount.units()));
        }
        let whole = entry.amount.plus(&more).ok().filter(|_| !more.is_zero())?;
        self.book(uid, &more);
        self.entries.get_mut(id)?.upgrade = Some((more, until));
        Some(whole)
    }

    /// Frees an entry. Returns whether there was one.
    pub fn release(&mut self, id: &JointId) -> bool {
        let Some(entry) = self.entries.remove(id) else { return false };
        self.unbook(entry.uid, &entry.amount);
        if let Some((more, _)) = entry.upgrade {
            self.unbook(entry.uid, &more);
        }
        true
    }

    /// Frees all entries and upgrades whose time is over. Returns the identities of the entries.
    pub fn expire(&mut self, now: Instant) -> Vec<JointId> {
        // Called before every order, and nearly always nothing is over.
        if self.next_wakeup().is_none_or(|wakeup| wakeup > now) {
            return Vec::new();
        }
        let ids: Vec<JointId> = self.entries.keys().cloned().collect();
        ids.iter().for_each(|id| self.end_upgrade(id, now));
        let over = |id: &JointId| self.entries.get(id).is_some_and(|entry| entry.until <= now);
        let over: Vec<JointId> = ids.into_iter().filter(over).collect();
        over.iter().for_each(|id| {
            self.release(id);
        });
        over
    }

    /// When [`Holds::expire`] is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let upgrades = self.entries.values().filter_map(|entry| entry.upgrade.as_ref().map(|(_, until)| *until));
        self.entries.values().map(|entry| entry.until).chain(upgrades).min()
    }

    /// The amount of each resource that is neither held nor committed.
    pub fn free(&self) -> Resources {
        let mut free = Resources::default();
        for (resource, _) in self.capacity.iter() {
            set(&mut free, &resource, self.free_of(&resource));
        }
        free
    }

    /// The committed amount of an entry; `None` if it is only held, or not known.
    pub fn committed(&self, id: &JointId) -> Option<&Resources> {
        self.entries.get(id).filter(|entry| entry.is_committed).map(|entry| &entry.amount)
    }

    /// The identities of all entries, with the end of each.
    pub fn entries(&self) -> impl Iterator<Item = (&JointId, Instant)> {
        self.entries.iter().map(|(id, entry)| (id, entry.until))
    }

    fn free_of(&self, resource: &Resource) -> u64 {
        self.capacity.units(resource).saturating_sub(sum(&self.promised, resource))
    }

    /// The largest amount that a user may still have.
    fn grantable(&self, uid: u32, resource: &Resource) -> u64 {
        let left = |cap: &Resources| cap.units(resource).saturating_sub(self.of_user(uid, resource));
        self.caps.get(&uid).map_or(u64::MAX, left).min(self.free_of(resource))
    }

    fn of_user(&self, uid: u32, resource: &Resource) -> u64 {
        self.by_user.get(&uid).map_or(0, |sums| sum(sums, resource))
    }

    fn shortage(&self, uid: u32, resource: Resource, asked: Amount, minimum: &Resources) -> HoldRefusal {
        let amount = |units| resource.amount(units);
        let committed = |uid: Option<u32>| -> u64 {
            let counted = self.entries.values().filter(|entry| uid.is_none_or(|uid| uid == entry.uid));
            counted.map(|entry| entry.committed(&resource)).sum()
        };
        let left = self.capacity.units(&resource).saturating_sub(committed(None));
        let cap = self.caps.get(&uid).map_or(u64::MAX, |cap| cap.units(&resource));
        let largest_without_holds = cap.saturating_sub(committed(Some(uid))).min(left);
        HoldRefusal {
            asked,
            minimum: amount(minimum.units(&resource)),
            free: amount(self.free_of(&resource)),
            largest: amount(self.grantable(uid, &resource)),
            is_transient: largest_without_holds >= minimum.units(&resource),
            resource,
        }
    }

    fn end_upgrade(&mut self, id: &JointId, now: Instant) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        if let Some((more, _)) = entry.upgrade.take_if(|(_, until)| *until <= now) {
            let uid = entry.uid;
            self.unbook(uid, &more);
        }
    }

    fn book(&mut self, uid: u32, amounts: &Resources) {
        let users = self.by_user.entry(uid).or_default();
        for (resource, amount) in amounts.iter() {
            *self.promised.entry(resource.clone()).or_default() += amount.units();
            *users.entry(resource).or_default() += amount.units();
        }
        debug_assert!(self.is_consistent());
    }

    fn unbook(&mut self, uid: u32, amounts: &Resources) {
        let users = self.by_user.entry(uid).or_default();
        for (resource, amount) in amounts.iter() {
            subtract(&mut self.promised, &resource, amount.units());
            subtract(users, &resource, amount.units());
        }
        if users.is_empty() {
            self.by_user.remove(&uid);
        }
    }

    /// Whether no resource is promised beyond the capacity.
    fn is_consistent(&self) -> bool {
        self.promised.iter().all(|(resource, promised)| *promised <= self.capacity.units(resource))
    }

    /// Panics unless the sums are those of the entries and within capacity and maxima; for tests.
    pub fn check(&self) {
        for (resource, amount) in self.capacity.iter() {
            let promised: u64 = self.entries.values().map(|entry| entry.total(&resource)).sum();
            assert_eq!(promised, sum(&self.promised, &resource), "{resource}");
            assert!(promised <= amount.units(), "{resource}: {promised} of {amount} promised");
        }
        for (uid, cap) in &self.caps {
            for (resource, amount) in cap.iter() {
                assert!(self.of_user(*uid, &resource) <= amount.units(), "user {uid}: {resource}");
            }
        }
    }
}

fn sum(sums: &Sums, resource: &Resource) -> u64 {
    sums.get(resource).copied().unwrap_or(0)
}

fn subtract(sums: &mut Sums, resource: &Resource, units: u64) {
    let left = sum(sums, resource) - units;
    if left == 0 {
        sums.remove(resource);
    } else {
        sums.insert(resource.clone(), left);
    }
}

/// Sets a component that another valid vector names.
fn set(vector: &mut Resources, resource: &Resource, units: u64) {
    if units > 0 {
        vector.set_units(resource, units).expect("the links of a valid vector");
    }
}
