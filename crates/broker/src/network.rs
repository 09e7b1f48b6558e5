//! Promises on one direction of a link: Σ `B_acc` + `B_req` ≤ `B_HI` (QualMan §5.1.2), with maxima per user and group,
//! partial grants, and offers of freed rates (§5.1.4). A promise belongs to a stream, or is a held rate without a stream
//! (`network/held.rs`).
//!
//! ```text
//! admit ──> granted = wanted ──────────────┐
//!   └─────> least ≤ granted < wanted ──────┼──> release
//!               └─ offers ──> want ──> granted rises
//! ```
//!
//! Rates include all headers, as the interface counts them. `B_HI` is the rate that the administrator states for the
//! link, less the part of best effort; rounded down.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_types::api::net::{HeldRateId, StreamId};
use qfabric_types::{BitRate, Instant, LinkEnd, Owner, Share};

use crate::link_refusal::{LinkBound, LinkHolder, LinkRefusal, LinkUse};

mod held;

/// The administrator's limits of one direction of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// `B_HI`: the largest sum of promises.
    pub capacity: BitRate,
    /// The maximum of users without an entry in `users`; `None` means no maximum.
    pub default_user: Option<BitRate>,
    /// By uid: the largest sum of a user's promises.
    pub users: BTreeMap<u32, BitRate>,
    /// By gid: the largest sum of a group's promises.
    pub groups: BTreeMap<u32, BitRate>,
    /// Largest number of streams of one user, because a link has few streams; also the largest number of held rates.
    pub streams_per_user: u32,
    /// Users to which `default_user` and `streams_per_user` do not apply: the administrators.
    pub exempt: BTreeSet<u32>,
}

impl LinkLimits {
    /// Limits of a link of `rate` that keeps the part `best_effort` for packets without a stream; no maxima.
    pub fn of_link(rate: BitRate, best_effort: Share) -> LinkLimits {
        let part = u128::from(Share::ONE.saturating_sub(best_effort).ppm());
        let capacity = u128::from(rate.get()) * part / u128::from(Share::ONE.ppm());
        LinkLimits::of_capacity(BitRate::new(capacity as u64))
    }

    pub fn of_capacity(capacity: BitRate) -> LinkLimits {
        LinkLimits {
            capacity,
            default_user: None,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            streams_per_user: u32::MAX,
            exempt: BTreeSet::new(),
        }
    }

    /// The user and group that a stream counts against: of all `groups` of its process, the one with the smallest
    /// maximum. So a program cannot escape a maximum by running under another of its groups.
    pub fn counted(&self, owner: Owner, groups: &[u32]) -> Owner {
        let own = groups.iter().chain([&owner.gid]);
        let tightest = own.filter_map(|gid| Some((self.groups.get(gid)?, *gid))).min();
        Owner { gid: tightest.map_or(owner.gid, |(_, gid)| gid), ..owner }
    }

    fn user_cap(&self, uid: u32) -> Option<BitRate> {
        let default = self.default_user.filter(|_| !self.exempt.contains(&uid));
        self.users.get(&uid).copied().or(default)
    }

    fn group_cap(&self, gid: u32) -> Option<BitRate> {
        self.groups.get(&gid).copied()
    }
}

/// A request for a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDemand {
    /// The user and group that the promise counts against.
    pub owner: Owner,
    /// The name of the stream or held rate in refusals.
    pub name: String,
    /// The smallest rate that is useful; less is refused.
    pub least: BitRate,
    pub wanted: BitRate,
    /// The end of the lease; `None` if the lease has no time.
    pub until: Option<Instant>,
}

/// A freed rate that a partly satisfied stream may take. It is not reserved: the first that asks gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOffer {
    pub stream: StreamId,
    pub granted: BitRate,
    /// The rate that [`LinkBroker::want`] would grant, if the offers to earlier streams are accepted too.
    pub offered: BitRate,
}

#[derive(Clone, Debug)]
struct Promise {
    demand: LinkDemand,
    granted: BitRate,
    /// Place in the order of admission.
    order: u64,
    /// The held rate from which the stream draws: its rate is counted there, and not a second time.
    within: Option<HeldRateId>,
}

/// The promises on one direction of a link.
#[derive(Clone, Debug)]
pub struct LinkBroker {
    end: LinkEnd,
    limits: LinkLimits,
    promises: BTreeMap<StreamId, Promise>,
    /// Rates that are promised without a stream.
    held: BTreeMap<HeldRateId, Promise>,
    admitted: u64,
}

/// The rates and numbers that are left under each limit.
#[derive(Clone, Debug)]
struct Room {
    link: BitRate,
    users: BTreeMap<u32, BitRate>,
    groups: BTreeMap<u32, BitRate>,
    /// The part of each held rate from which no stream draws.
    held: BTreeMap<HeldRateId, BitRate>,
}

impl LinkBroker {
    pub fn new(end: LinkEnd, limits: LinkLimits) -> LinkBroker {
        LinkBroker { end, limits, promises: BTreeMap::new(), held: BTreeMap::new(), admitted: 0 }
    }

    pub fn end(&self) -> &LinkEnd {
        &self.end
    }

    pub fn limits(&self) -> &LinkLimits {
        &self.limits
    }

    /// Checks that [`LinkBroker::set_limits`] would accept these limits.
    ///
    /// # Errors
    /// The promises exceed the new capacity.
    pub fn check_limits(&self, limits: &LinkLimits) -> Result<(), LinkRefusal> {
        let (promised, capacity) = (self.promised(), limits.capacity);
        match promised <= capacity {
            true => Ok(()),
            false => Err(self.refusal(LinkBound::Promised(capacity), promised, capacity)),
        }
    }

    /// Sets new limits. Promises are kept, even above a new maximum of a user or group.
    ///
    /// # Errors
    /// The promises exceed the new capacity; the old limits stay in force.
    pub fn set_limits(&mut self, limits: LinkLimits) -> Result<(), LinkRefusal> {
        self.check_limits(&limits)?;
        self.limits = limits;
        Ok(())
    }

    /// Admits a stream and returns the granted rate: `wanted`, or as much as is free, but at least `least`.
    ///
    /// # Errors
    /// Less than `least` is free on the link or below a maximum, or the user has too many streams. A refusal changes
    /// nothing.
    pub fn admit(&mut self, stream: StreamId, demand: LinkDemand) -> Result<BitRate, LinkRefusal> {
        self.begin(stream, demand, None)
    }

    fn begin(
        &mut self,
        stream: StreamId,
        demand: LinkDemand,
        within: Option<HeldRateId>,
    ) -> Result<BitRate, LinkRefusal> {
        assert!(!self.promises.contains_key(&stream), "stream {stream} is admitted twice");
        self.check_number(demand.owner.uid)?;
        let granted = self.grant(None, &demand, within)?;
        self.admitted += 1;
        self.promises.insert(stream, Promise { demand, granted, order: self.admitted, within });
        Ok(granted)
    }

    /// The stream wants another rate from now on, or accepts an offer; returns the granted rate. An unknown stream is
    /// granted nothing.
    ///
    /// # Errors
    /// As for [`LinkBroker::admit`]; the old promise stays in force.
    pub fn want(&mut self, stream: StreamId, least: BitRate, wanted: BitRate) -> Result<BitRate, LinkRefusal> {
        let Some(promise) = self.promises.get(&stream) else { return Ok(BitRate::ZERO) };
        let demand = LinkDemand { least, wanted, ..promise.demand.clone() };
        let granted = self.grant(Some(LinkUse::Stream(stream)), &demand, promise.within)?;
        if let Some(promise) = self.promises.get_mut(&stream) {
            (promise.demand, promise.granted) = (demand, granted);
        }
        Ok(granted)
    }

    /// The link's mechanism carries only this rate; the rest of the grant is free.
    pub fn settle(&mut self, stream: StreamId, carried: BitRate) {
        if let Some(promise) = self.promises.get_mut(&stream) {
            promise.granted = promise.granted.min(carried);
        }
    }

    /// The stream has ended; its rate is free. An unknown stream is ignored.
    pub fn release(&mut self, stream: StreamId) {
        self.promises.remove(&stream);
    }

    /// Sets the end of the stream's lease.
    pub fn renew(&mut self, stream: StreamId, until: Option<Instant>) {
        if let Some(promise) = self.promises.get_mut(&stream) {
            promise.demand.until = until;
        }
    }

    /// The streams whose leases have ended. They hold their rates until [`LinkBroker::release`].
    pub fn expired(&self, now: Instant) -> impl Iterator<Item = StreamId> + '_ {
        let ended = move |promise: &Promise| promise.demand.until.is_some_and(|until| until <= now);
        self.promises.iter().filter(move |(_, promise)| ended(promise)).map(|(stream, _)| *stream)
    }

    /// The rates that partly satisfied streams may take now, in the order of admission. All of them together fit.
    pub fn offers(&self) -> Vec<LinkOffer> {
        let mut partly: Vec<_> = self.promises.iter().filter(|(_, p)| p.granted < p.demand.wanted).collect();
        partly.sort_by_key(|(_, promise)| promise.order);
        let mut room = self.room(None);
        let offer = |(stream, promise): (&StreamId, &Promise)| {
            let (owner, missing) = (promise.demand.owner, promise.demand.wanted - promise.granted);
            let more = missing.min(room.left(&self.limits, owner, promise.within).0);
            room.take(owner, promise.within, more);
            let offered = promise.granted + more;
            (more > BitRate::ZERO).then_some(LinkOffer { stream: *stream, granted: promise.granted, offered })
        };
        partly.into_iter().filter_map(offer).collect()
    }

    /// Σ `B_acc`.
    pub fn promised(&self) -> BitRate {
        self.counted(None).map(|promise| promise.granted).sum()
    }

    /// `B_HI` − Σ `B_acc`.
    pub fn free(&self) -> BitRate {
        self.limits.capacity - self.promised()
    }

    /// The promised rate of each user.
    pub fn users(&self) -> BTreeMap<u32, BitRate> {
        self.sums(None, |owner| owner.uid)
    }

    /// The granted rate and the wanted rate of a stream.
    pub fn promise(&self, stream: StreamId) -> Option<(BitRate, BitRate)> {
        self.promises.get(&stream).map(|promise| (promise.granted, promise.demand.wanted))
    }

    pub fn owner(&self, stream: StreamId) -> Option<Owner> {
        self.promises.get(&stream).map(|promise| promise.demand.owner)
    }

    /// The end of the stream's lease, if the lease has a time.
    pub fn until(&self, stream: StreamId) -> Option<Instant> {
        self.promises.get(&stream).and_then(|promise| promise.demand.until)
    }

    /// The holders of promises, largest first; without streams that draw from a held rate.
    pub fn holders(&self) -> Vec<LinkHolder> {
        let mut holders: Vec<_> = self.uses().map(|(by, promise)| holder(by, promise)).collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.rate));
        holders
    }

    fn check_number(&self, uid: u32) -> Result<(), LinkRefusal> {
        let has = self.promises.values().filter(|promise| promise.demand.owner.uid == uid).count();
        let most = self.limits.streams_per_user;
        match has < most as usize || self.limits.exempt.contains(&uid) {
            true => Ok(()),
            false => Err(self.refusal(LinkBound::Streams { uid, most }, BitRate::ZERO, BitRate::ZERO)),
        }
    }

    /// The rate that the demand gets in place of the promise to `instead_of`, from the held rate `within` or the link.
    fn grant(
        &self,
        instead_of: Option<LinkUse>,
        demand: &LinkDemand,
        within: Option<HeldRateId>,
    ) -> Result<BitRate, LinkRefusal> {
        let (free, bound) = self.room(instead_of).left(&self.limits, demand.owner, within);
        match demand.least.min(demand.wanted) <= free {
            true => Ok(demand.wanted.min(free)),
            false => Err(self.refusal(bound, demand.least.min(demand.wanted), free)),
        }
    }

    fn refusal(&self, bound: LinkBound, asked: BitRate, free: BitRate) -> LinkRefusal {
        LinkRefusal::new(self.end.clone(), bound, asked, free, self.holders())
    }

    fn room(&self, without: Option<LinkUse>) -> Room {
        let (users, groups) = (self.sums(without, |owner| owner.uid), self.sums(without, |owner| owner.gid));
        Room { link: self.limits.capacity - users.values().copied().sum(), users, groups, held: self.undrawn(without) }
    }

    /// All streams that do not draw from a held rate, and all held rates.
    fn uses(&self) -> impl Iterator<Item = (LinkUse, &Promise)> {
        let streams = self.promises.iter().filter(|(_, promise)| promise.within.is_none());
        let streams = streams.map(|(stream, promise)| (LinkUse::Stream(*stream), promise));
        streams.chain(self.held.iter().map(|(rate, promise)| (LinkUse::Held(*rate), promise)))
    }

    fn counted(&self, without: Option<LinkUse>) -> impl Iterator<Item = &Promise> {
        self.uses().filter(move |(by, _)| Some(*by) != without).map(|(_, promise)| promise)
    }

    fn sums(&self, without: Option<LinkUse>, key: impl Fn(Owner) -> u32) -> BTreeMap<u32, BitRate> {
        let mut sums = BTreeMap::new();
        for promise in self.counted(without) {
            *sums.entry(key(promise.demand.owner)).or_default() += promise.granted;
        }
        sums
    }
}

fn holder(by: LinkUse, promise: &Promise) -> LinkHolder {
    let LinkDemand { name, owner, .. } = &promise.demand;
    LinkHolder { by, name: name.clone(), uid: owner.uid, rate: promise.granted }
}

impl Room {
    /// The largest rate that `owner` may be granted more, from the held rate `within` or from the link, and the limit
    /// that decides.
    fn left(&self, limits: &LinkLimits, owner: Owner, within: Option<HeldRateId>) -> (BitRate, LinkBound) {
        if let Some(rate) = within {
            return (self.held.get(&rate).copied().unwrap_or_default(), LinkBound::Held(rate));
        }
        let Owner { uid, gid } = owner;
        let of = |sums: &BTreeMap<u32, BitRate>, id| sums.get(&id).copied().unwrap_or_default();
        let link = (self.link, LinkBound::Capacity(limits.capacity));
        let user = limits.user_cap(uid).map(|cap| (cap - of(&self.users, uid), LinkBound::User { uid, cap }));
        let group = limits.group_cap(gid).map(|cap| (cap - of(&self.groups, gid), LinkBound::Group { gid, cap }));
        let tighter = |a: (BitRate, LinkBound), b: (BitRate, LinkBound)| if b.0 < a.0 { b } else { a };
        [user, group].into_iter().flatten().fold(link, tighter)
    }

    fn take(&mut self, owner: Owner, within: Option<HeldRateId>, rate: BitRate) {
        if let Some(left) = within.and_then(|held| self.held.get_mut(&held)) {
            *left = *left - rate;
            return;
        }
        self.link = self.link - rate;
        *self.users.entry(owner.uid).or_default() += rate;
        *self.groups.entry(owner.gid).or_default() += rate;
    }
}

#[cfg(test)]
mod tests;
