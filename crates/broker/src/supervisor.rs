//! The supervisor: who was promised how much of the processor, and who holds how much of it now.
//! Shares in millionths of one CPU, moments in nanoseconds.
//!
//! Three numbers per application, always `granted <= target`, `granted <= booked`:
//!
//! ```text
//!   wanted --(guarantees, levels, weights, maxima: filling)--> target --(room)--> granted --> kernel
//!                                                                                    |
//!                            a decrease stays booked until it has taken effect --> booked
//! ```
//!
//! Σ booked never exceeds the capacity. A decrease is granted at once but frees its room only when it is
//! settled, or one server period later: the old budget may still be consumed until the next replenishment. For
//! applications whose room is free at once ([`Supervisor::free_at_once`]) `booked` is always `granted`.
//! An increase above the free room is granted in part and stays pending; it is served as room appears.
//! Source: AQuoSA 2009, §3.2, §4.4, §5.3.2. A request is O(1) while everybody has what is wanted, O(n)
//! otherwise; nothing is allocated after admission.

use qfabric_types::api::Holder;
use qfabric_types::{AppId, Class, Contract, Instant, Nanos, Owner, Share};

use crate::filling::{self, Claim, NO_LIMIT, Room};
use crate::refusal::{Bound, Refusal};
use crate::{LEVELS, Limits};

/// One application in the books.
#[derive(Clone, Debug)]
struct Entry {
    app: AppId,
    name: String,
    owner: Owner,
    level: u8,
    weight: u32,
    /// Places of its user's and its group's maximum in `caps`; 0 for none.
    user: usize,
    group: usize,
    /// P: how long a decrease may take to become effective.
    period: Nanos,
    most: u64,
    guaranteed: u64,
    wanted: u64,
    target: u64,
    granted: u64,
    booked: u64,
    /// When `booked` falls to `granted`; NEVER while they are equal.
    due: Instant,
    /// Its decreases free their room at once.
    at_once: bool,
    /// Has left; stays in the books until its last decrease is due.
    left: bool,
    /// In `changed` already.
    told: bool,
}

/// The books of one host's processor.
#[derive(Clone, Debug)]
pub struct Supervisor {
    limits: Limits,
    /// Ascending by number: admission hands numbers out in order.
    entries: Vec<Entry>,
    booked: u64,
    wanted: u64,
    /// Everybody holds what is wanted: a request that fits needs no sharing out.
    calm: bool,
    /// No maximum but the capacity concerns anybody present; otherwise every request is shared out.
    simple: bool,
    earliest_due: Instant,
    /// Maxima of the users and groups present; the first is none.
    caps: Vec<u64>,
    changed: Vec<AppId>,
    claims: Vec<Claim>,
    room: Room,
}

impl Supervisor {
    /// Books with nothing in them.
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

    /// Takes `app` in and guarantees it `guaranteed` (classes A and B, and fixed services; nothing to class C). It
    /// holds nothing until it wants something. Numbers must ascend from admission to admission.
    ///
    /// # Errors
    /// The guarantee does not fit beside the others (AQuoSA (9)), or is above its user's or group's
    /// maximum. Nothing was changed.
    pub fn admit(&mut self, app: AppId, owner: Owner, contract: &Contract, guaranteed: Share) -> Result<(), Refusal> {
        assert!(self.entries.last().is_none_or(|last| last.app < app), "applications are numbered in order");
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
            told: false,
        });
        self.number_owners();
        self.reserve_scratch();
        let entry = self.entries.last_mut().expect("an entry was just pushed");
        entry.write(contract, guaranteed);
        Ok(())
    }

    /// Replaces the contract of `app`; what it holds is shared out anew.
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

    /// `app` wants `share` from now on; more than its contract's maximum bandwidth is not given. What
    /// follows for anybody is told by [`Supervisor::grants`]. Unknown applications are ignored.
    pub fn want(&mut self, app: AppId, share: Share, now: Instant) {
        self.expire(now);
        let Some(at) = self.find_present(app) else { return };
        let entry = &mut self.entries[at];
        let wanted = u64::from(share.ppm()).min(entry.most);
        let before = std::mem::replace(&mut entry.wanted, wanted);
        self.wanted = self.wanted - before + wanted;
        if self.calm && self.simple && self.fits(at) {
            self.entries[at].target = wanted;
            self.set(at, wanted, now);
        } else {
            self.share_out(now);
        }
    }

    /// The grants that changed since last asked, each once, with its newest value.
    pub fn grants(&mut self) -> impl Iterator<Item = (AppId, Share)> + '_ {
        std::iter::from_fn(move || {
            while let Some(app) = self.changed.pop() {
                if let Some(at) = self.find(app) {
                    self.entries[at].told = false;
                    return Some((app, share(self.entries[at].granted)));
                }
            }
            None
        })
    }

    /// What each application would hold if all wanted all that their contracts allow, ascending by application.
    /// Their sum is never above the capacity.
    pub fn shares(&self) -> Vec<(AppId, Share)> {
        let all = |entry: &Entry| Claim { wanted: if entry.left { 0 } else { entry.most }, ..Self::claim(entry) };
        let mut claims: Vec<Claim> = self.entries.iter().map(all).collect();
        let mut room = self.room.clone();
        room.owners.clone_from(&self.caps);
        self.open(&mut room);
        filling::fill(&mut claims, &mut room);
        self.entries.iter().zip(&claims).map(|(entry, claim)| (entry.app, share(claim.given))).collect()
    }

    /// Whether decreases of `app` free their room when they are granted, as suits who reclaims and may run for a server
    /// period more on what it had; else they do when they are settled. What it holds when it leaves never does.
    pub fn free_at_once(&mut self, app: AppId, at_once: bool) {
        if let Some(at) = self.find_present(app) {
            self.entries[at].at_once = at_once;
        }
    }

    /// A thread of `from` that holds `share` is `to`'s from now on, and with it as much of what `from` wants and holds, no
    /// more than `to` may hold. Answers how much; the sums stay as they are.
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
            if !std::mem::replace(&mut self.entries[at].told, true) {
                self.changed.push(self.entries[at].app);
            }
        }
        share(part)
    }

    /// The last decrease of `app` has taken effect: its room is free. Without this call that is assumed
    /// one server period after the decrease was granted.
    pub fn settle(&mut self, app: AppId, now: Instant) {
        if let Some(at) = self.find(app) {
            self.unbook(at);
            self.sweep(now);
        }
    }

    /// `app` has left. Its guarantee is free at once, what it held when that has taken effect.
    pub fn release(&mut self, app: AppId, now: Instant) {
        let Some(at) = self.find_present(app) else { return };
        let entry = &mut self.entries[at];
        self.wanted -= std::mem::take(&mut entry.wanted);
        (entry.guaranteed, entry.target, entry.left, entry.at_once) = (0, 0, true, false);
        self.set(at, 0, now);
        self.sweep(now);
    }

    /// The administrator allows something else, or the host has another capacity. What is held is shared out anew by the
    /// same formula; guarantees that were given are kept, also where they are above a new maximum of a level, user or group.
    /// Where the capacity fell below what is held, holdings are cut as by any other overload; until those decreases have
    /// taken effect, more than the capacity is booked.
    pub fn set_limits(&mut self, limits: Limits, now: Instant) {
        self.limits = limits;
        self.number_owners();
        self.expire(now);
        self.share_out(now);
    }

    /// When a decrease frees room that somebody waits for.
    pub fn next_wakeup(&self) -> Option<Instant> {
        (!self.calm && self.earliest_due != Instant::NEVER).then_some(self.earliest_due)
    }

    /// Time has passed: frees what is due and serves what is pending.
    pub fn on_time(&mut self, now: Instant) {
        self.expire(now);
    }

    /// U_lub.
    pub fn capacity(&self) -> Share {
        self.limits.capacity
    }
    /// Σ of the guarantees.
    pub fn guaranteed(&self) -> Share {
        share(self.entries.iter().map(|e| e.guaranteed).sum())
    }
    /// Σ of what is granted.
    pub fn granted(&self) -> Share {
        share(self.entries.iter().map(|e| e.granted).sum())
    }
    /// Σ of what is granted and of decreases that have not taken effect.
    pub fn booked(&self) -> Share {
        share(self.booked)
    }
    /// What `app` holds; nothing for an unknown one.
    pub fn grant_of(&self, app: AppId) -> Share {
        self.find(app).map_or(Share::ZERO, |at| share(self.entries[at].granted))
    }
    /// What `app` wants; nothing for an unknown one.
    pub fn wanted_by(&self, app: AppId) -> Share {
        self.find(app).map_or(Share::ZERO, |at| share(self.entries[at].wanted))
    }
    /// What is guaranteed to `app`; nothing for an unknown one.
    pub fn guaranteed_to(&self, app: AppId) -> Share {
        self.find(app).map_or(Share::ZERO, |at| share(self.entries[at].guaranteed))
    }

    fn find(&self, app: AppId) -> Option<usize> {
        self.entries.binary_search_by_key(&app, |entry| entry.app).ok()
    }

    fn find_present(&self, app: AppId) -> Option<usize> {
        self.find(app).filter(|&at| !self.entries[at].left)
    }

    /// AQuoSA (9) for the host, and the same for the maxima of the owner. No more than was guaranteed before is never
    /// refused, since limits may have been lowered below it.
    fn check(&self, app: AppId, owner: Owner, asked: Share) -> Result<(), Refusal> {
        if asked <= self.guaranteed_to(app) {
            return Ok(());
        }
        self.check_one(app, asked, Bound::Capacity(self.limits.capacity), self.limits.capacity, |_| true)?;
        if let Some(cap) = self.limits.user_cap(owner) {
            let bound = Bound::User { uid: owner.uid, cap };
            self.check_one(app, asked, bound, cap, |e| e.owner.uid == owner.uid)?;
        }
        if let Some(cap) = self.limits.group_cap(owner) {
            let bound = Bound::Group { gid: owner.gid, cap };
            self.check_one(app, asked, bound, cap, |e| e.owner.gid == owner.gid)?;
        }
        Ok(())
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

    /// Whether everybody can hold what is wanted, this one at once.
    fn fits(&self, at: usize) -> bool {
        let (capacity, entry) = (u64::from(self.limits.capacity.ppm()), &self.entries[at]);
        let rise = entry.wanted.saturating_sub(entry.booked);
        self.wanted <= capacity && self.booked + rise <= capacity
    }

    /// Computes who should hold what, then moves towards it: decreases at once, increases into free room.
    fn share_out(&mut self, now: Instant) {
        self.fill_targets();
        for at in 0..self.entries.len() {
            // Also increases inside what is still booked: they cost no room.
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
    }

    /// The limits of the host and of its levels; those of the owners are set.
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

    /// Gives every user and group that has a maximum its place in the list of limits, and sees whether there are any.
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

    /// Raises grants towards `goal`, each by the same fraction of what it lacks, as far as there is room.
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

    /// Grants exactly `granted`, keeping the books.
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
        if !std::mem::replace(&mut entry.told, true) {
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

    /// Frees what is due by `now`, and serves who waits for it.
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

    /// Forgets who has left and owes nothing, and shares free room out.
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

/// Classes A and B are guaranteed a part; so is a static reservation, whatever its class.
fn promises(contract: &Contract) -> bool {
    contract.class != Class::C || contract.static_server().is_some()
}

/// The index of a new limit, or 0 for none.
fn limit(cap: Option<Share>, caps: &mut Vec<u64>) -> usize {
    let Some(cap) = cap else { return 0 };
    caps.push(u64::from(cap.ppm()));
    caps.len() - 1
}

fn share(ppm: u64) -> Share {
    Share::from_ppm(ppm.min(u32::MAX.into()) as u32)
}
