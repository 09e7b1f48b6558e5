//! Brokers that only count: the capacity of a host and the maxima of its users, for simulations and tests of the book.

use std::collections::BTreeMap;

use qfabric_types::api::contracts::JointId;
use qfabric_types::{Owner, Resource, Resources};

use super::brokers::{HoldBound, JointBrokers, Lack};

/// One user's part of what is promised; a user without an entry has no maximum.
pub type UserCaps = BTreeMap<u32, Resources>;

/// The sums over all holders, or over those of one user. Absent resources are zero.
type Sums = BTreeMap<Resource, u64>;

/// The capacity of one host, and what is promised of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedBrokers {
    capacity: Resources,
    caps: UserCaps,
    promised: Sums,
    by_user: BTreeMap<u32, Sums>,
    /// The number of times that a resource was closed: what was held before is not held any more.
    closed: BTreeMap<Resource, u64>,
}

/// What one contract holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedHolder {
    uid: u32,
    /// By resource: the amount, and the number of closings before it.
    held: BTreeMap<Resource, (u64, u64)>,
}

impl JointBrokers for CountedBrokers {
    type Holder = CountedHolder;

    fn holder(&mut self, _: &JointId, owner: Owner) -> CountedHolder {
        CountedHolder { uid: owner.uid, held: BTreeMap::new() }
    }

    fn set(&mut self, holder: &mut CountedHolder, resource: &Resource, most: u64, least: u64) -> Result<u64, Lack> {
        let has = self.has(holder, resource);
        let (free, cap) = (self.free_of(resource) + has, self.caps.get(&holder.uid).map(|cap| cap.units(resource)));
        let left = cap.map_or(u64::MAX, |cap| cap.saturating_sub(self.of_user(holder.uid, resource) - has));
        let largest = left.min(free);
        if largest < least {
            let bound =
                cap.filter(|_| left < free).map_or(HoldBound::Free, |cap| HoldBound::User { uid: holder.uid, cap });
            return Err(Lack::Short { free: free - has, largest, bound, others: 0 });
        }
        let granted = most.min(largest);
        self.book(holder.uid, resource, has, granted);
        let closings = self.closings(resource);
        holder.held.insert(resource.clone(), (granted, closings));
        Ok(granted)
    }

    fn free(&mut self, holder: CountedHolder) {
        for resource in holder.held.keys() {
            self.book(holder.uid, resource, self.has(&holder, resource), 0);
        }
    }

    fn is_whole(&self, holder: &CountedHolder) -> bool {
        holder.held.iter().all(|(resource, (units, closings))| *units == 0 || *closings == self.closings(resource))
    }

    /// Only users have maxima here.
    fn may_count_for(&self, _: &CountedHolder, _: u32) -> bool {
        false
    }
}

impl CountedBrokers {
    /// A link that `capacity` does not name has no capacity.
    pub fn new(capacity: Resources, caps: UserCaps) -> CountedBrokers {
        CountedBrokers { capacity, caps, ..CountedBrokers::default() }
    }

    /// Closes a resource and opens it again at once: what was held of it is free, as after `qfabric net link rm`.
    pub fn close(&mut self, resource: &Resource) {
        *self.closed.entry(resource.clone()).or_default() += 1;
        self.promised.remove(resource);
        self.by_user.values_mut().for_each(|sums| _ = sums.remove(resource));
        self.by_user.retain(|_, sums| !sums.is_empty());
    }

    /// The amount of each resource that no contract holds.
    pub fn free(&self) -> Resources {
        let mut free = Resources::default();
        self.capacity.iter().for_each(|(resource, _)| free.put(&resource, self.free_of(&resource)));
        free
    }

    /// Panics unless the sums are those of the holders, and within capacity and maxima; for tests.
    pub(super) fn check<'a>(&self, holders: impl Iterator<Item = &'a CountedHolder> + Clone) {
        for (resource, amount) in self.capacity.iter() {
            let promised: u64 = holders.clone().map(|holder| self.has(holder, &resource)).sum();
            assert_eq!(promised, sum(&self.promised, &resource), "{resource}");
            assert!(promised <= amount.units(), "{resource}: {promised} of {amount} promised");
        }
        for (uid, cap) in &self.caps {
            for (resource, amount) in cap.iter() {
                assert!(self.of_user(*uid, &resource) <= amount.units(), "user {uid}: {resource}");
            }
        }
    }

    /// What a holder has: nothing of what was held before a closing.
    fn has(&self, holder: &CountedHolder, resource: &Resource) -> u64 {
        let (units, closings) = holder.held.get(resource).copied().unwrap_or_default();
        if closings == self.closings(resource) { units } else { 0 }
    }

    fn closings(&self, resource: &Resource) -> u64 {
        sum(&self.closed, resource)
    }

    fn free_of(&self, resource: &Resource) -> u64 {
        self.capacity.units(resource).saturating_sub(sum(&self.promised, resource))
    }

    fn of_user(&self, uid: u32, resource: &Resource) -> u64 {
        self.by_user.get(&uid).map_or(0, |sums| sum(sums, resource))
    }

    fn book(&mut self, uid: u32, resource: &Resource, from: u64, to: u64) {
        let users = self.by_user.entry(uid).or_default();
        for sums in [&mut self.promised, users] {
            let units = sum(sums, resource) - from + to;
            match units {
                0 => drop(sums.remove(resource)),
                units => drop(sums.insert(resource.clone(), units)),
            }
        }
        self.by_user.retain(|_, sums| !sums.is_empty());
    }
}

fn sum(sums: &Sums, resource: &Resource) -> u64 {
    sums.get(resource).copied().unwrap_or(0)
}
