//! The memory broker: records how much memory may stay resident for each reserve. Amounts in bytes, whole pages.
//!
//! ```text
//!   wanted --(global reserve, user, group)--> granted --> groups, locked pools
//!                       a decrease stays booked until it is settled --> booked
//! ```
//!
//! Σ booked never exceeds the global reserve: `Mem_req + Σ Mem_acc <= Mem_glob_resv` (QualMan §4, §4.1). Unlike a
//! share of the processor, memory is granted as a whole or refused: a program that gets half of its pages misses its
//! deadlines as often as one without a reserve. A request is O(n) in the number of reserves.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_types::api::memory::ReserveId;
use qfabric_types::{Bytes, Owner};

use crate::memory_refusal::{MemoryBound, MemoryHolder, MemoryRefusal, ReserveBelowPromises};

/// The administrator's limits of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Mem_glob_resv: the largest amount that may be promised in total; zero switches reserves off.
    pub global_reserve: Bytes,
    /// By uid: most that the reserves of a user may hold together.
    pub users: BTreeMap<u32, Bytes>,
    /// By gid: most that the reserves of a group may hold together.
    pub groups: BTreeMap<u32, Bytes>,
    /// The maximum of users without an entry in `users`; `None` means no maximum.
    pub default_user: Option<Bytes>,
    /// Users to which `default_user` and the largest number of reserves do not apply: the administrators.
    pub exempt: BTreeSet<u32>,
}

impl MemoryLimits {
    /// Largest amount that the reserves of `owner`'s user may hold together; `None` means no maximum.
    pub fn user_cap(&self, owner: Owner) -> Option<Bytes> {
        let default = self.default_user.filter(|_| !self.exempt.contains(&owner.uid));
        self.users.get(&owner.uid).copied().or(default)
    }

    /// The user and group that a reserve counts against: of all `groups` of a process, the one with the smallest
    /// maximum, so that a program cannot escape a maximum by running under another of its groups.
    pub fn counted_for(&self, owner: Owner, groups: &[u32]) -> Owner {
        let own = groups.iter().chain([&owner.gid]);
        let tightest = own.filter_map(|gid| Some((self.groups.get(gid)?, *gid))).min();
        Owner { gid: tightest.map_or(owner.gid, |(_, gid)| gid), ..owner }
    }
}

/// One reserve: Mem_acc and its owner.
#[derive(Clone, Debug)]
struct Entry {
    owner: Owner,
    name: String,
    pid: i32,
    granted: Bytes,
    /// At least `granted`: a decrease frees its room when it is settled.
    booked: Bytes,
}

/// The accounts of one host's memory.
#[derive(Clone, Debug)]
pub struct MemoryBroker {
    limits: MemoryLimits,
    /// The page size in bytes, a power of two.
    page: u64,
    entries: BTreeMap<ReserveId, Entry>,
    last: u64,
}

/// A request for a new reserve.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRequester<'a> {
    pub owner: Owner,
    /// Name and process, for refusals of others.
    pub name: &'a str,
    pub pid: i32,
}

impl MemoryBroker {
    /// Most reserves of one user at the same time, so that no user fills the tables.
    pub const MOST_RESERVES_PER_USER: usize = 64;

    /// `page`: the size of a page in bytes, a power of two.
    pub fn new(limits: MemoryLimits, page: u64) -> Self {
        assert!(page.is_power_of_two(), "a page has {page} bytes");
        MemoryBroker { limits, page, entries: BTreeMap::new(), last: 0 }
    }

    pub fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// Replaces the limits. Existing reserves keep their amounts, even above a new maximum of a user or group; that
    /// maximum applies to their next increase.
    ///
    /// # Errors
    /// More than the new global reserve is promised; the old limits stay in force.
    pub fn set_limits(&mut self, limits: MemoryLimits) -> Result<(), ReserveBelowPromises> {
        let (asked, promised) = (limits.global_reserve, self.promised());
        if promised > asked {
            return Err(ReserveBelowPromises { asked, promised, holders: self.holders() });
        }
        self.limits = limits;
        Ok(())
    }

    /// The amount in whole pages, as it is counted.
    pub fn whole_pages(&self, bytes: Bytes) -> Bytes {
        bytes.round_up(self.page)
    }

    /// Admits a reserve of `bytes`, rounded up to whole pages. Each reserve has a new number.
    ///
    /// # Errors
    /// The amount does not fit beside the others or exceeds the maximum of its user or group, or the user has the
    /// largest number of reserves. A refusal changes nothing.
    pub fn admit(&mut self, requester: MemoryRequester<'_>, bytes: Bytes) -> Result<ReserveId, MemoryRefusal> {
        let MemoryRequester { owner, name, pid } = requester;
        let bytes = self.whole_pages(bytes);
        self.check_places(owner, bytes)?;
        self.check(None, owner, bytes)?;
        self.last += 1;
        let id = ReserveId(self.last);
        self.entries.insert(id, Entry { owner, name: name.to_owned(), pid, granted: bytes, booked: bytes });
        Ok(id)
    }

    /// Changes a reserve to `bytes`, rounded up to whole pages. An increase counts at once; the room of a decrease
    /// becomes free with [`MemoryBroker::settle`]. Returns the granted amount; zero for an unknown reserve.
    ///
    /// # Errors
    /// As for [`MemoryBroker::admit`]; the reserve keeps its amount.
    pub fn want(&mut self, id: ReserveId, bytes: Bytes) -> Result<Bytes, MemoryRefusal> {
        let bytes = self.whole_pages(bytes);
        let Some(entry) = self.entries.get(&id) else { return Ok(Bytes::ZERO) };
        if bytes > entry.booked {
            self.check(Some(id), entry.owner, bytes)?;
        }
        let entry = self.entries.get_mut(&id).expect("found above");
        entry.granted = bytes;
        entry.booked = entry.booked.max(bytes);
        Ok(bytes)
    }

    /// The decrease of a reserve has taken effect: its pages are unlocked, or its group's protection is lower.
    pub fn settle(&mut self, id: ReserveId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.booked = entry.granted;
        }
    }

    /// Ends a reserve and frees its room. Call it after its pages are unlocked. An unknown reserve is ignored.
    pub fn release(&mut self, id: ReserveId) {
        self.entries.remove(&id);
    }

    /// Mem_acc of a reserve.
    pub fn granted(&self, id: ReserveId) -> Option<Bytes> {
        self.entries.get(&id).map(|entry| entry.granted)
    }

    /// The largest amount that [`MemoryBroker::want`] would grant to a reserve now.
    pub fn largest_for(&self, id: ReserveId) -> Option<Bytes> {
        let owner = self.entries.get(&id)?.owner;
        let free = |(bound, cap)| self.largest(cap - self.held_beside(Some(id), owner, bound));
        self.bounds(owner).map(free).min()
    }

    /// The sum of all promises, with decreases that are not settled.
    pub fn promised(&self) -> Bytes {
        self.entries.values().map(|entry| entry.booked).sum()
    }

    /// The amount that can still be promised.
    pub fn free(&self) -> Bytes {
        self.limits.global_reserve - self.promised()
    }

    /// The reserves, largest first, at most [`crate::Refusal::MOST_HOLDERS`].
    pub fn holders(&self) -> Vec<MemoryHolder> {
        let holder = |(id, entry): (&ReserveId, &Entry)| {
            let Entry { name, pid, booked, .. } = entry.clone();
            MemoryHolder { reserve: *id, name, pid, bytes: booked }
        };
        let mut holders: Vec<MemoryHolder> = self.entries.iter().map(holder).collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        holders.truncate(crate::Refusal::MOST_HOLDERS);
        holders
    }

    fn check_places(&self, owner: Owner, asked: Bytes) -> Result<(), MemoryRefusal> {
        let held = self.entries.values().filter(|entry| entry.owner.uid == owner.uid).count();
        match held >= Self::MOST_RESERVES_PER_USER && !self.limits.exempt.contains(&owner.uid) {
            true => Err(self.refusal(MemoryBound::Reserves { uid: owner.uid, most: held }, asked, Bytes::ZERO)),
            false => Ok(()),
        }
    }

    /// Checks whether the reserve `id` (a new one: `None`) may hold `asked` beside all others.
    fn check(&self, id: Option<ReserveId>, owner: Owner, asked: Bytes) -> Result<(), MemoryRefusal> {
        for (bound, cap) in self.bounds(owner) {
            let free = self.largest(cap - self.held_beside(id, owner, bound));
            if asked > free {
                return Err(self.refusal(bound, asked, free));
            }
        }
        Ok(())
    }

    /// The limits that apply to an owner, with their amounts.
    fn bounds(&self, owner: Owner) -> impl Iterator<Item = (MemoryBound, Bytes)> {
        let reserve = self.limits.global_reserve;
        let user = self.limits.user_cap(owner).map(|cap| (MemoryBound::User { uid: owner.uid, cap }, cap));
        let group = self.limits.groups.get(&owner.gid);
        let group = group.map(|cap| (MemoryBound::Group { gid: owner.gid, cap: *cap }, *cap));
        [Some((MemoryBound::Reserve(reserve), reserve)), user, group].into_iter().flatten()
    }

    /// The largest request within `bytes`: requests are rounded up to whole pages.
    fn largest(&self, bytes: Bytes) -> Bytes {
        Bytes::new(bytes.get() & !(self.page - 1))
    }

    /// The sum that counts against a bound, without the reserve `id`.
    fn held_beside(&self, id: Option<ReserveId>, owner: Owner, bound: MemoryBound) -> Bytes {
        let counts = |entry: &Entry| match bound {
            MemoryBound::User { .. } | MemoryBound::Reserves { .. } => entry.owner.uid == owner.uid,
            MemoryBound::Group { .. } => entry.owner.gid == owner.gid,
            MemoryBound::Reserve(_) => true,
        };
        let others = self.entries.iter().filter(|(other, entry)| Some(**other) != id && counts(entry));
        others.map(|(_, entry)| entry.booked).sum()
    }

    fn refusal(&self, bound: MemoryBound, asked: Bytes, largest: Bytes) -> MemoryRefusal {
        MemoryRefusal { bound, asked, free: self.free(), largest, holders: self.holders() }
    }
}

#[cfg(test)]
mod tests;
