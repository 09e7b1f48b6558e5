//! The supervisor: records the share of the processor that each application was promised and holds now. Shares in
//! millionths of one CPU, instants in nanoseconds.
//!
//! The supervisor keeps three shares per application; always `granted <= target` and `granted <= booked`:
//!
//! ```text
//!   wanted --(guarantees, levels, weights, maxima: filling)--> target --(room)--> granted --> kernel
//!                                                                                    |
//!                            a decrease stays booked until it has taken effect --> booked
//! ```
//!
//! Σ booked never exceeds the capacity. A decrease is granted at once, but frees its room only when it is settled,
//! or one server period later: the application may still use its old budget until the next replenishment. For
//! applications whose room is free at once ([`Supervisor::free_at_once`]), `booked` always equals `granted`. An
//! increase above the free room is granted in part; the rest stays pending and is granted when room becomes free.
//! Source: AQuoSA 2009, §3.2, §4.4, §5.3.2. A request is O(1) while every application holds the share it wants,
//! O(n) otherwise. After admission no call allocates memory, except the exchange by utility under overload.

use qfabric_types::api::Holder;
use qfabric_types::{AppId, Class, Contract, Demand, Instant, Nanos, Owner, Share};

use crate::filling::{self, Claim, NO_LIMIT, Room};
use crate::refusal::{Bound, Refusal};
use crate::utility::{self, Party, Steps};
use crate::{LEVELS, Limits};

/// The accounts of one application.
#[derive(Clone, Debug)]
struct Entry {
    app: AppId,
    name: String,
    owner: Owner,
    level: u8,
    weight: u32,
    /// Indices into `caps` of the maxima of its user and its group; 0 if there is no maximum.
    user: usize,
    group: usize,
    /// P: a decrease has taken effect after this time at the latest.
    period: Nanos,
    most: u64,
    guaranteed: u64,
    wanted: u64,
    target: u64,
    granted: u64,
    booked: u64,
    /// The time at which `booked` falls to `granted`; `NEVER` while they are equal.
    due: Instant,
    /// Decreases free their room at once.
    at_once: bool,
    /// The application has left; the entry stays until its last decrease is due.
    left: bool,
    /// Already in `changed`.
    is_listed: bool,
    /// Its preferences; `None`: weights alone decide.
    utility: Option<Box<Steps>>,
}

/// The accounts of one host's processor.
#[derive(Clone, Debug)]
pub struct Supervisor {
    limits: Limits,
    /// Ascending by application number: admission assigns numbers in order.
    entries: Vec<Entry>,
    booked: u64,
    wanted: u64,
    /// Every application holds the share it wants, so a request that fits needs no new division.
    calm: bool,
    /// No maximum but the capacity applies to the present applications; otherwise every request causes a new
    /// division.
    simple: bool,
    earliest_due: Instant,
    /// Maxima of the present users and groups; index 0 stands for no maximum.
    caps: Vec<u64>,
    changed: Vec<AppId>,
    claims: Vec<Claim>,
    room: Room,
}

impl Supervisor {
    pub fn new(limits: Limits) -> Self {
        Supervisor {
            limits,
            entries: Vec::new(),
            booked: 0,
            wanted: 0,
            calm: true,
            simple: false,
            earliest_due: Instant::NEVER,
            caps: vec![NO_LIMIT],
            changed: Vec::new(),
            claims: Vec::new(),
            room: Room::default(),
        }
    }

    /// Admits `app` and guarantees it `guaranteed` (classes A and B, and fixed services; class C gets no
    /// guarantee). The application holds no share until it wants one. Application numbers must ascend from
    /// admission to admission.
    ///
    /// # Errors
    /// The guarantee does not fit beside the others (AQuoSA (9)), or exceeds the maximum of its user or group. A
    /// refusal changes nothing.
    pub fn admit(&mut self, app: AppId, owner: Owner, contract: &Contract, guaranteed: Share) -> Result<(), Refusal> {
        assert!(self.entries.last().is_none_or(|last| last.app < app), "application numbers ascend");
        let guaranteed = if promises(contract) { guaranteed } else { Share::ZERO };
        self.check(app, owner, guaranteed)?;
        self.entries.push(Entry {
            app,
            name: String::new(),
            owner,
            level: 0,
            weight: 1,
            user: 0,
            group: 0,
            period: Nanos::ZERO,
            most: 0,
            guaranteed: 0,
            wanted: 0,
            target: 0,
            granted: 0,
            booked: 0,
            due: Instant::NEVER,
            at_once: false,
            left: false,
            is_listed: false,
            utility: None,
        });
        self.number_owners();
        self.reserve_scratch();
        let entry = self.entries.last_mut().expect("the entry pushed above");
        entry.write(contract, guaranteed);
        Ok(())
    }

    /// Replaces the contract of `app` and divides the capacity again.
    ///
    /// # Errors
    /// As for [`Supervisor::admit`]; the old contract stays in force.
    pub fn change(&mut self, app: AppId, contract: &Contract, guaranteed: Share, now: Instant) -> Result<(), Refusal> {
        let Some(at) = self.find_present(app) else { return Ok(()) };
        let guaranteed = if promises(contract) { guaranteed } else { Share::ZERO };
        self.check(app, self.entries[at].owner, guaranteed)?;
        let entry = &mut self.entries[at];
        entry.write(contract, guaranteed);
        let wanted = entry.wanted.min(entry.most);
        self.wanted = self.wanted - entry.wanted + wanted;
        entry.wanted = wanted;
        self.expire(now);
        self.share_out(now);
        Ok(())
    }

    /// The application wants this share from now on; a share above its contract's maximum bandwidth is cut to the
    /// maximum. [`Supervisor::grants`] returns the resulting changes of all applications. An unknown application is
    /// ignored.
    pub fn want(&mut self, demand: Demand, now: Instant) {
        self.expire(now);
        let Some(at) = self.find_present(demand.app) else { return };
        let entry = &mut self.entries[at];
        let wanted = u64::from(demand.share.ppm()).min(entry.most);
        let before = std::mem::replace(&mut entry.wanted, wanted);
        self.wanted = self.wanted - before + wanted;
        if self.calm && self.simple && self.fits(at) {
            self.entries[at].target = wanted;
            self.set(at, wanted, now);
        } else {
            self.share_out(now);
        }
    }

    /// Sets what shares are worth to `app`; `None`: weights alone decide. Under overload, the applications of one user,
    /// group and priority level that have utilities divide what the weights give them together by marginal utility.
    pub fn set_utility(&mut self, app: AppId, steps: Option<Steps>, now: Instant) {
        let Some(at) = self.find_present(app) else { return };
        let steps = steps.map(Box::new);
        if self.entries[at].utility == steps {
            return;
        }
        self.entries[at].utility = steps;
        self.expire(now);
        self.share_out(now);
    }

    /// The grants that changed since the last call, each application once, with its newest grant.
    pub fn grants(&mut self) -> impl Iterator<Item = (AppId, Share)> + '_ {
        std::iter::from_fn(move || {
            while let Some(app) = self.changed.pop() {
                if let Some(at) = self.find(app) {
                    self.entries[at].is_listed = false;
                    return Some((app, share(self.entries[at].granted)));
                }
            }
            None
        })
    }

    /// The share that each application would hold if every application wanted its contract's maximum, ascending by
    /// application. The sum never exceeds the capacity.
    pub fn shares(&self) -> Vec<(AppId, Share)> {
        let all = |entry: &Entry| Claim { wanted: if entry.left { 0 } else { entry.most }, ..Self::claim(entry) };
        let mut claims: Vec<Claim> = self.entries.iter().map(all).collect();
        let mut room = self.room.clone();
        room.owners.clone_from(&self.caps);
        self.open(&mut room);
        filling::fill(&mut claims, &mut room);
        self.entries.iter().zip(&claims).map(|(entry, claim)| (entry.app, share(claim.given))).collect()
    }

    /// Sets whether decreases of `app` free their room when they are granted. Use this for an application that
    /// reclaims: it may run one server period longer on its old budget anyway. Otherwise decreases free their room
    /// when they are settled. The share of an application that leaves is never free at once.
    pub fn free_at_once(&mut self, app: AppId, at_once: bool) {
        if let Some(at) = self.find_present(app) {
            self.entries[at].at_once = at_once;
        }
    }

    /// Moves a thread with the grant `share_held` from `from` to `to`, together with that part of `from`'s wanted
    /// share and grant, limited to the maximum of `to`. Returns the share that moved; the sums over all
    /// applications do not change.
    pub fn transfer(&mut self, from: AppId, to: AppId, share_held: Share) -> Share {
        let (Some(old), Some(new)) = (self.find_present(from), self.find_present(to)) else { return Share::ZERO };
        let Entry { granted, wanted, .. } = self.entries[old];
        let room = self.entries[new].most.saturating_sub(self.entries[new].wanted);
        let part = u64::from(share_held.ppm()).min(granted).min(wanted).min(room);
        let giver = &mut self.entries[old];
        (giver.wanted, giver.granted, giver.booked) = (wanted - part, granted - part, giver.booked - part);
        giver.target = giver.target.saturating_sub(part);
        let taker = &mut self.entries[new];
        (taker.wanted, taker.target) = (taker.wanted + part, taker.target + part);
        (taker.granted, taker.booked) = (taker.granted + part, taker.booked + part);
        for at in [old, new] {
            if !std::mem::replace(&mut self.entries[at].is_listed, true) {
                self.changed.push(self.entries[at].app);
            }
        }
        share(part)
    }

    /// The last decrease of `app` has taken effect, so its room is free. Without this call, the supervisor assumes
    /// this one server period after the decrease was granted.
    pub fn settle(&mut self, app: AppId, now: Instant) {
        if let Some(at) = self.find(app) {
            self.unbook(at);
            self.sweep(now);
        }
    }

    /// `app` has left. Its guarantee is free at once; its grant is free when the decrease has taken effect.
    pub fn release(&mut self, app: AppId, now: Instant) {
        let Some(at) = self.find_present(app) else { return };
        let entry = &mut self.entries[at];
        self.wanted -= std::mem::take(&mut entry.wanted);
        (entry.guaranteed, entry.target, entry.left, entry.at_once) = (0, 0, true, false);
        self.set(at, 0, now);
        self.sweep(now);
    }

    /// Sets new limits of the administrator or a new capacity of the host, and divides the capacity again by the
    /// same formula. Existing guarantees are kept, even above a new maximum of a level, user or group. If the
    /// capacity fell below the sum of the grants, grants are cut as in any other overload; until those decreases
    /// have taken effect, more than the capacity is booked.
    pub fn set_limits(&mut self, limits: Limits, now: Instant) {
        self.limits = limits;
        self.number_owners();
        self.expire(now);
        self.share_out(now);
    }

    /// The time at which a decrease frees room that an application waits for.
    pub fn next_wakeup(&self) -> Option<Instant> {
        (!self.calm && self.earliest_due != Instant::NEVER).then_some(self.earliest_due)
    }

    /// Frees room that is due at `now` and grants pending increases.
    pub fn on_time(&mut self, now: Instant) {
        self.expire(now);
    }

    /// U_lub.
    pub fn capacity(&self) -> Share {
        self.limits.capacity
    }
    /// Σ guaranteed.
    pub fn guaranteed(&self) -> Share {
        share(self.entries.iter().map(|e| e.guaranteed).sum())
    }
    /// Σ granted.
    pub fn granted(&self) -> Share {
        share(self.entries.iter().map(|e| e.granted).sum())
    }
    /// Σ booked: the grants, and decreases that have not taken effect.
    pub fn booked(&self) -> Share {
        share(self.booked)
    }
    /// The grant of `app`; zero for an unknown application.
    pub fn grant_of(&self, app: AppId) -> Share {
        self.find(app).map_or(Share::ZERO, |at| share(self.entries[at].granted))
    }
    /// The share that `app` wants; zero for an unknown application.
    pub fn wanted_by(&self, app: AppId) -> Share {
        self.find(app).map_or(Share::ZERO, |at| share(self.entries[at].wanted))
    }
    /// The guarantee of `app`; zero for an unknown application.
    pub fn guaranteed_to(&self, app: AppId) -> Share {
        self.find(app).map_or(Share::ZERO, |at| share(self.entries[at].guaranteed))
    }

    fn find(&self, app: AppId) -> Option<usize> {
        self.entries.binary_search_by_key(&app, |entry| entry.app).ok()
    }

    fn find_present(&self, app: AppId) -> Option<usize> {
        self.find(app).filter(|&at| !self.entries[at].left)
    }

    /// Checks AQuoSA (9) for the host, and the same for the maxima of the owner. A guarantee that is not above the
    /// old one is never refused, because limits may have been lowered below it.
    fn check(&self, app: AppId, owner: Owner, asked: Share) -> Result<(), Refusal> {
        if asked <= self.guaranteed_to(app) {
            return Ok(());
        }
        let capacity = self.limits.capacity;
        let whole = self.check_one(app, asked, Bound::Capacity(capacity), capacity, |_| true);
        let user = self.limits.user_cap(owner).map_or(Ok(()), |cap| {
            let bound = Bound::User { uid: owner.uid, cap };
            self.check_one(app, asked, bound, cap, |e| e.owner.uid == owner.uid)
        });
        let group = self.limits.group_cap(owner).map_or(Ok(()), |cap| {
            let bound = Bound::Group { gid: owner.gid, cap };
            self.check_one(app, asked, bound, cap, |e| e.owner.gid == owner.gid)
        });
        // The refusal advises to ask for what is free, so it names the bound that leaves the least.
        let refusals = [whole, user, group].into_iter().filter_map(Result::err);
        refusals.min_by_key(|refusal| refusal.free).map_or(Ok(()), Err)
    }

    fn check_one(
        &self,
        app: AppId,
        asked: Share,
        bound: Bound,
        cap: Share,
        counts: impl Fn(&Entry) -> bool,
    ) -> Result<(), Refusal> {
        let others = || self.entries.iter().filter(|e| e.app != app && e.guaranteed > 0 && counts(e));
        let free = cap.saturating_sub(share(others().map(|e| e.guaranteed).sum()));
        if asked <= free {
            return Ok(());
        }
        let mut holders: Vec<Holder> =
            others().map(|e| Holder { id: e.app, name: e.name.clone(), share: share(e.guaranteed) }).collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.share));
        holders.truncate(Refusal::MOST_HOLDERS);
        Err(Refusal { bound, asked, free, holders })
    }

    /// Whether every application can hold the share that it wants, and the application at index `at` can hold its share
    /// at once.
    fn fits(&self, at: usize) -> bool {
        let (capacity, entry) = (u64::from(self.limits.capacity.ppm()), &self.entries[at]);
        let rise = entry.wanted.saturating_sub(entry.booked);
        self.wanted <= capacity && self.booked + rise <= capacity
    }

    /// Computes the target of every application, then moves grants towards it: decreases at once, increases into
    /// free room.
    fn share_out(&mut self, now: Instant) {
        self.fill_targets();
        for at in 0..self.entries.len() {
            // Includes increases within the booked share: they need no room.
            let Entry { target, granted, booked, .. } = self.entries[at];
            if target < granted || granted < booked {
                self.set(at, target.min(booked), now);
            }
        }
        self.serve(now, |entry| entry.target.min(entry.guaranteed));
        for level in (0..LEVELS as u8).rev() {
            self.serve(now, |entry| if entry.level == level { entry.target } else { 0 });
        }
        self.calm = self.entries.iter().all(|entry| entry.granted == entry.wanted);
    }

    fn fill_targets(&mut self) {
        self.claims.clear();
        let mut room = std::mem::take(&mut self.room);
        room.owners.clone_from(&self.caps);
        self.open(&mut room);
        self.room = room;
        self.claims.extend(self.entries.iter().map(Self::claim));
        filling::fill(&mut self.claims, &mut self.room);
        for (entry, claim) in self.entries.iter_mut().zip(&self.claims) {
            entry.target = claim.given;
        }
        self.exchange_by_utility();
    }

    /// Lets applications of one user, group and level exchange their targets. No limit is exceeded: limits apply to
    /// users, groups and levels, whose sums stay.
    fn exchange_by_utility(&mut self) {
        let takes_part = |entry: &Entry| entry.utility.is_some() && !entry.left;
        let key = |entry: &Entry| (entry.level, entry.owner.uid, entry.owner.gid);
        for first in 0..self.entries.len() {
            let this = key(&self.entries[first]);
            let is_member = |entry: &Entry| takes_part(entry) && key(entry) == this;
            if !is_member(&self.entries[first]) || self.entries[..first].iter().any(is_member) {
                continue;
            }
            let members: Vec<usize> = (first..self.entries.len()).filter(|at| is_member(&self.entries[*at])).collect();
            let party = |at: &usize| {
                let Entry { guaranteed, wanted, target, ref utility, .. } = self.entries[*at];
                Some(Party { steps: utility.as_deref()?, guaranteed, wanted, given: target })
            };
            let mut parties: Vec<Party<'_>> = members.iter().filter_map(party).collect();
            utility::exchange(&mut parties);
            let given: Vec<u64> = parties.iter().map(|party| party.given).collect();
            members.into_iter().zip(given).for_each(|(at, given)| self.entries[at].target = given);
        }
    }

    /// Sets the limits of the host and of its levels; the caller has set those of the owners.
    fn open(&self, room: &mut Room) {
        room.capacity = u64::from(self.limits.capacity.ppm());
        for (level, room) in room.levels.iter_mut().enumerate() {
            *room = self.limits.levels.get(&(level as u8)).map_or(NO_LIMIT, |cap| u64::from(cap.ppm()));
        }
    }

    fn claim(entry: &Entry) -> Claim {
        Claim {
            level: entry.level,
            weight: entry.weight,
            user: entry.user,
            group: entry.group,
            guaranteed: entry.guaranteed,
            wanted: entry.wanted,
            ..Claim::default()
        }
    }

    /// Gives every user and group with a maximum its index in `caps`, and updates `simple`.
    fn number_owners(&mut self) {
        self.caps.clear();
        self.caps.push(NO_LIMIT);
        for at in 0..self.entries.len() {
            let owner = self.entries[at].owner;
            let user = self.entries[..at].iter().find(|e| e.owner.uid == owner.uid).map(|e| e.user);
            let group = self.entries[..at].iter().find(|e| e.owner.gid == owner.gid).map(|e| e.group);
            self.entries[at].user = user.unwrap_or_else(|| limit(self.limits.user_cap(owner), &mut self.caps));
            self.entries[at].group = group.unwrap_or_else(|| limit(self.limits.group_cap(owner), &mut self.caps));
        }
        self.simple = self.limits.levels.is_empty() && self.caps.len() == 1;
    }

    /// Raises grants towards `goal`, as far as there is room, each by the same fraction of its gap.
    fn serve(&mut self, now: Instant, goal: impl Fn(&Entry) -> u64) {
        let lack = |entry: &Entry| goal(entry).saturating_sub(entry.granted);
        let missing: u64 = self.entries.iter().map(&lack).sum();
        let free = u64::from(self.limits.capacity.ppm()).saturating_sub(self.booked);
        if missing == 0 || free == 0 {
            return;
        }
        for at in 0..self.entries.len() {
            let lack = lack(&self.entries[at]);
            let rise = if missing <= free { lack } else { (lack as u128 * free as u128 / missing as u128) as u64 };
            if rise > 0 {
                self.set(at, self.entries[at].granted + rise, now);
            }
        }
    }

    /// Sets a grant and updates the accounts.
    fn set(&mut self, at: usize, granted: u64, now: Instant) {
        let entry = &mut self.entries[at];
        if entry.granted == granted {
            return;
        }
        if granted < entry.granted && !entry.at_once {
            entry.due = now + entry.period;
            self.earliest_due = self.earliest_due.min(entry.due);
        }
        if granted >= entry.booked {
            self.booked += granted - entry.booked;
            (entry.booked, entry.due) = (granted, Instant::NEVER);
        }
        entry.granted = granted;
        if !std::mem::replace(&mut entry.is_listed, true) {
            self.changed.push(entry.app);
        }
        if self.entries[at].at_once {
            self.unbook(at);
        }
    }

    fn unbook(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        self.booked -= entry.booked - entry.granted;
        (entry.booked, entry.due) = (entry.granted, Instant::NEVER);
    }

    /// Frees room that is due at `now`, and grants pending increases.
    fn expire(&mut self, now: Instant) {
        if now < self.earliest_due {
            return;
        }
        for at in 0..self.entries.len() {
            if self.entries[at].due <= now {
                self.unbook(at);
            }
        }
        self.sweep(now);
    }

    /// Removes applications that have left and whose room is free, and divides free room.
    fn sweep(&mut self, now: Instant) {
        let before = self.entries.len();
        self.entries.retain(|entry| !(entry.left && entry.booked == 0));
        if self.entries.len() != before {
            self.number_owners();
        }
        self.earliest_due = self.entries.iter().map(|entry| entry.due).min().unwrap_or(Instant::NEVER);
        if !self.calm {
            self.share_out(now);
        }
    }

    fn reserve_scratch(&mut self) {
        let n = self.entries.len();
        self.changed.reserve(n.saturating_sub(self.changed.len()));
        self.claims.reserve(n.saturating_sub(self.claims.len()));
        self.room.reserve(2 * n + 1);
    }
}

impl Entry {
    fn write(&mut self, contract: &Contract, guaranteed: Share) {
        self.name.clone_from(&contract.name);
        self.level = contract.priority.min(LEVELS as u8 - 1);
        self.weight = contract.weight.max(1);
        self.period = contract.server_period;
        self.most = u64::from(contract.max_bandwidth.ppm());
        self.guaranteed = u64::from(guaranteed.ppm()).min(self.most);
    }
}

/// Whether a contract gets a guarantee: classes A and B, and static reservations of any class.
fn promises(contract: &Contract) -> bool {
    contract.class != Class::C || contract.static_server().is_some()
}

/// Appends a maximum to `caps` and returns its index, or 0 for `None`.
fn limit(cap: Option<Share>, caps: &mut Vec<u64>) -> usize {
    let Some(cap) = cap else { return 0 };
    caps.push(u64::from(cap.ppm()));
    caps.len() - 1
}

fn share(ppm: u64) -> Share {
    Share::from_ppm(ppm.min(u32::MAX.into()) as u32)
}
