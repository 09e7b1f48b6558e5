//! Groups of the QoS tree whose members are on several hosts.
//!
//! ```text
//!   member ──Want──> leader of its group ──Want (the sum)──> leader of the parent group …
//!   member <─Grant── leader of its group <─Grant──────────── leader of the parent group …
//! ```
//! Every member host runs the same controller. The host with the first name among the members is the leader, so the
//! group survives the loss of any host. A leader has its members' wants and its own grant, nothing of the levels
//! above or below. Wants are sent again every [`REFRESH`], each with the amount that the member has: a new leader
//! needs nothing from the old one. Source: Q-channels paper §3.3.
//!
//! A group that a partition cuts in two has two leaders. Each divides its *pool*: the whole amount while the group
//! is complete; while members are missing, the amount without that of the missing members, or the amount that its
//! own members have. [`Split`] decides when the pool becomes whole again, or empty. So all parts together never
//! hand out more than the whole amount, except for [`LISTEN`] after a change of members.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use qfabric_channel::Registration;
use qfabric_control::adapt::group::{Division, Group, Want};
use qfabric_control::adapt::split::{Split, SplitState};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, QualityText};
use qfabric_types::{AppId, Instant, Nanos};

use super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, Topic, View};

/// Interval at which a want is sent again.
const REFRESH: Nanos = Nanos::from_millis(1_000);

/// A child without a report for this time is removed: it left, and its message was lost.
const FORGET: Nanos = Nanos::from_millis(3_500);

/// Time for which a new leader only listens. In this time the grants of the old leader have reached the members,
/// and the members have reported their amounts.
const LISTEN: Nanos = Nanos::from_millis(1_500);

/// Largest number of children of one host; further ones are ignored, so that no host fills the memory of the leader.
const MOST_OF_A_HOST: usize = 1_024;

/// The amount that a leader may hand out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pool {
    /// This host is not the leader.
    NotLeading,
    /// This host has just become the leader.
    Listening { since: Instant },
    /// The amount.
    Has(f64),
}

/// The amount of a child, as its leader has recorded it.
#[derive(Clone, Copy, Debug)]
struct Given {
    amount: f64,
    /// Upper bound of the child's amount: the last grant may not have reached it, so it has not reported less yet.
    at_most: f64,
}

/// The controller of one group on one host.
#[derive(Debug)]
pub struct GroupController {
    name: String,
    group: Name,
    attribute: AttributeId,
    channel: ChannelId,
    parent: Option<ChannelId>,
    importance: u32,
    /// The amount to divide, if there is no parent.
    capacity: f64,
    /// Host and name, with the number of registrations: one may end while another of the same name goes on.
    members: BTreeMap<(Name, Name), u32>,
    locals: BTreeMap<AppId, Want>,
    children: Group,
    /// The host, the number there, and the last report of each child.
    homes: BTreeMap<u64, (Name, AppId, Instant)>,
    granted: Option<f64>,
    /// The last amount applied for each application of this host.
    amounts: BTreeMap<u64, i64>,
    split: Split<Name>,
    pool: Pool,
    given: BTreeMap<u64, Given>,
    next: Instant,
}

impl GroupController {
    /// For a resource of a group. `capacity` is the amount of a group without a parent; `level` is that of
    /// [`Registration`].
    pub fn new(group: &Name, parent: Option<&Name>, level: u8, attribute: AttributeId, capacity: i64) -> Option<Self> {
        let division = match level {
            1 | 2 => Division::Equal,
            3 => Division::Importance,
            4 => Division::Weight,
            _ => return None,
        };
        let parent = match parent {
            Some(parent) => Some(group_channel(parent)?),
            None => None,
        };
        Some(GroupController {
            name: format!("group.{group}"),
            group: group.clone(),
            attribute,
            channel: group_channel(group)?,
            parent,
            importance: 0,
            capacity: capacity.max(0) as f64,
            members: BTreeMap::new(),
            locals: BTreeMap::new(),
            children: Group::new(division),
            homes: BTreeMap::new(),
            granted: None,
            amounts: BTreeMap::new(),
            split: Split::new(Instant::ZERO),
            pool: Pool::NotLeading,
            given: BTreeMap::new(),
            next: Instant::ZERO,
        })
    }

    /// The group's importance to its parent.
    pub fn with_importance(mut self, importance: u32) -> Self {
        self.importance = importance;
        self
    }

    /// Adds the want of an application of this host.
    pub fn with_local(mut self, application: AppId, least: i64, most: i64, importance: u32) -> Self {
        self.local(application, least, most, importance);
        self
    }

    /// Adds or changes the want of an application of this host.
    pub fn local(&mut self, application: AppId, least: i64, most: i64, importance: u32) {
        self.locals.insert(application, want_of(least, most, importance));
    }

    /// An application of this host left: the others get its amount when the leader has had no report of it for 3.5 s.
    /// If it joins again, its amount is applied again.
    pub fn forget_local(&mut self, host: &Name, application: AppId) {
        self.locals.remove(&application);
        self.amounts.remove(&child_number(host, application));
    }

    /// Whether an application of a host is registered in the group.
    pub fn has(&self, host: &Name, application: &Name) -> bool {
        self.members.contains_key(&(host.clone(), application.clone()))
    }

    /// The host with the first name.
    fn leader(&self) -> Option<&Name> {
        self.members.keys().next().map(|(host, _)| host)
    }

    fn leads(&self, host: &Name) -> bool {
        self.leader() == Some(host)
    }

    fn event(&self, kind: QualityKind, value: i64, other: i64, now: Instant) -> QualityEvent {
        QualityEvent {
            controller: AttributeId::of(&self.name),
            kind,
            value,
            other,
            request: 0,
            at: now,
            application: HOST,
            attribute: self.attribute,
            subject: QualityText::new(self.group.as_str()),
        }
    }

    /// Sends the amounts and wants of this host's applications to the leader, which may be this host.
    fn send_wants(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        let locals: Vec<_> = self.locals.iter().map(|(id, want)| (*id, *want)).collect();
        for (application, want) in locals {
            if self.leads(view.host) {
                let has = self.amounts.get(&child_number(view.host, application)).copied().unwrap_or(0);
                self.on_amount(view.host, application, has as f64, view.now);
                self.on_want(view.host, application, want, view.now);
                continue;
            }
            let Some(leader) = self.leader() else { return };
            self.send_want(application, want, leader, view, decisions);
        }
    }

    fn send_want(&self, application: AppId, want: Want, leader: &Name, view: &View<'_>, decisions: &mut Decisions) {
        let has = self.amounts.get(&child_number(view.host, application)).copied().unwrap_or(0);
        self.send(&self.channel, &Recipient::Host(leader.clone()), (application, has), want, view, decisions);
    }

    /// Sends the amount of an application, then its want.
    fn send(
        &self,
        channel: &ChannelId,
        to: &Recipient,
        (application, has): (AppId, i64),
        want: Want,
        view: &View<'_>,
        decisions: &mut Decisions,
    ) {
        let wants = (want.ceiling as i64, want.floor as i64);
        let same_for = i64::try_from(self.split.same_for(view.now).get()).unwrap_or(i64::MAX);
        for (kind, (value, other)) in [(QualityKind::Achieved, (has, same_for)), (QualityKind::Want, wants)] {
            let event = self.event(kind, value, other, view.now);
            let event = QualityEvent { application, request: want.importance.into(), ..event };
            decisions.push(Decision::Tell { channel: channel.clone(), to: to.clone(), event });
        }
    }

    fn on_want(&mut self, host: &Name, application: AppId, want: Want, now: Instant) {
        if let Some(child) = self.reported(host, application, now) {
            self.children.want(child, want);
        }
    }

    /// Records that a child has reported. Returns its number; `None`: its host has too many children.
    fn reported(&mut self, host: &Name, application: AppId, now: Instant) -> Option<u64> {
        let child = child_number(host, application);
        let of_host = || self.homes.values().filter(|(of, ..)| of == host).count();
        if !self.homes.contains_key(&child) && of_host() >= MOST_OF_A_HOST {
            return None;
        }
        self.homes.insert(child, (host.clone(), application, now));
        Some(child)
    }

    /// Handles the reported amount of a child. A new leader adopts it; a leader with its own record of the child
    /// keeps the record.
    fn on_amount(&mut self, host: &Name, application: AppId, amount: f64, now: Instant) {
        let Some(child) = self.reported(host, application, now) else { return };
        match &mut self.pool {
            Pool::NotLeading => {}
            Pool::Listening { .. } => {
                self.given.insert(child, Given { amount, at_most: amount });
            }
            Pool::Has(pool) => match self.given.entry(child) {
                Entry::Occupied(mut known) => known.get_mut().at_most = amount.max(known.get().amount),
                Entry::Vacant(unknown) => {
                    unknown.insert(Given { amount, at_most: amount });
                    *pool += amount;
                }
            },
        }
    }

    /// Divides the pool, as the leader. Increases wait until other children have given back the same amount,
    /// because a partition may come between an increase and the decrease that pays for it.
    fn lead(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        if !self.leads(view.host) {
            return self.follow();
        }
        self.forget(view.now);
        let Some(amount) = self.fill(view.now) else { return };
        let (less, more): (Vec<_>, Vec<_>) =
            self.children.divide(amount).into_iter().partition(|(child, grant)| *grant <= self.at_most(*child));
        for (child, grant) in less {
            self.grant(child, grant, view, decisions);
        }
        for (child, grant) in more {
            let free = (amount - self.handed_out()).max(0.0);
            let grant = grant.min(self.at_most(child) + free);
            self.grant(child, grant, view, decisions);
        }
    }

    fn at_most(&self, child: u64) -> f64 {
        self.given.get(&child).map_or(0.0, |given| given.at_most)
    }

    /// Upper bound of what all children together hold.
    fn handed_out(&self) -> f64 {
        self.given.values().map(|given| given.at_most).sum()
    }

    fn grant(&mut self, child: u64, grant: f64, view: &View<'_>, decisions: &mut Decisions) {
        let at_most = grant.max(self.at_most(child));
        self.given.insert(child, Given { amount: grant, at_most });
        let Some((host, application, _)) = self.homes.get(&child).cloned() else { return };
        if host == *view.host && !is_group(application) {
            self.given.insert(child, Given { amount: grant, at_most: grant });
            if self.locals.contains_key(&application) {
                self.apply(application, grant as i64, child, decisions);
            }
        } else {
            let event = QualityEvent { application, ..self.event(QualityKind::Grant, grant as i64, 0, view.now) };
            decisions.push(Decision::Tell { channel: self.channel.clone(), to: Recipient::Host(host), event });
        }
    }

    /// Clears the leader's records when another host leads.
    fn follow(&mut self) {
        if self.pool != Pool::NotLeading {
            self.pool = Pool::NotLeading;
            self.given.clear();
            self.homes.clear();
            self.children = Group::new(self.children.division());
        }
    }

    /// The amount to divide now; `None` while the leader listens.
    fn fill(&mut self, now: Instant) -> Option<f64> {
        let state = self.look(now);
        let most = if self.parent.is_none() { self.capacity } else { self.granted.unwrap_or(f64::MAX) };
        self.pool = match (self.pool, state) {
            (Pool::NotLeading, _) => Pool::Listening { since: now },
            (Pool::Listening { since }, _) if now.since(since) < LISTEN => return None,
            (_, SplitState::Whole) if self.parent.is_some() => Pool::Has(self.granted.unwrap_or(0.0)),
            (_, SplitState::Whole) => Pool::Has(self.capacity),
            (_, SplitState::Nothing) => Pool::Has(0.0),
            (Pool::Listening { .. }, SplitState::Share) => {
                Pool::Has(self.given.values().map(|given| given.amount).sum())
            }
            (pool, SplitState::Share) => pool,
        };
        self.pool().map(|pool| pool.min(most))
    }

    /// Updates the state of the group. Every host does this, because each may become the leader.
    fn look(&mut self, now: Instant) -> SplitState {
        let hosts = self.members.keys().map(|(host, _)| host.clone()).collect();
        self.split.look(&hosts, now)
    }

    /// The majority part takes over this part's amount, so a member gives it up without the leader, which may be
    /// gone.
    fn give_up(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        if self.split.state() != SplitState::Nothing {
            return;
        }
        for application in self.locals.keys().copied().collect::<Vec<_>>() {
            self.apply(application, 0, child_number(view.host, application), decisions);
        }
    }

    fn pool(&self) -> Option<f64> {
        if let Pool::Has(amount) = self.pool { Some(amount) } else { None }
    }

    fn send_total(&self, view: &View<'_>, decisions: &mut Decisions) {
        let Some(parent) = self.parent.clone().filter(|_| self.leads(view.host)) else { return };
        let total = self.children.total(Want { importance: self.importance, ..Want::NOTHING });
        let has = self.pool().unwrap_or(0.0).min(self.granted.unwrap_or(f64::MAX)).max(self.handed_out());
        // A group is a child like an application, with a number that no application has.
        self.send(&parent, &Recipient::All, (group_number(&self.group), has as i64), total, view, decisions);
    }

    /// Returns whether the amount changed.
    fn apply(&mut self, application: AppId, amount: i64, child: u64, decisions: &mut Decisions) -> bool {
        let changes = self.amounts.insert(child, amount) != Some(amount);
        if changes {
            decisions.push(Decision::Apply { application, attribute: self.attribute, amount });
        }
        changes
    }

    fn forget(&mut self, now: Instant) {
        let old: Vec<u64> =
            self.homes.iter().filter(|(_, (_, _, said))| now.since(*said) > FORGET).map(|(child, _)| *child).collect();
        old.into_iter().for_each(|child| self.lose(child));
    }

    /// Removes a child that is silent or gone. Its amount may still be in use, so it is not in the pool until the
    /// group is whole.
    fn lose(&mut self, child: u64) {
        self.homes.remove(&child);
        self.children.leave(child);
        let had = self.given.remove(&child).map_or(0.0, |given| given.at_most);
        if let Pool::Has(pool) = &mut self.pool {
            *pool = (*pool - had).max(0.0);
        }
    }

    fn host_gone(&mut self, gone: &Name) {
        self.members.retain(|(host, _), _| host != gone);
        let children: Vec<u64> =
            self.homes.iter().filter(|(_, (host, ..))| host == gone).map(|(child, _)| *child).collect();
        children.into_iter().for_each(|child| self.lose(child));
    }

    fn member_left(&mut self, host: &Name, application: &Name) {
        let member = (host.clone(), application.clone());
        let Some(registrations) = self.members.get_mut(&member) else { return };
        *registrations -= 1;
        if *registrations == 0 {
            self.members.remove(&member);
        }
        if self.members.keys().all(|(other, _)| other != host) {
            self.split.left(host);
        }
    }

    fn on_event(&mut self, change: &Change, event: &QualityEvent, view: &View<'_>, decisions: &mut Decisions) {
        let here = change.channel.as_ref() == Some(&self.channel);
        let above = change.channel.is_some() && change.channel == self.parent;
        match event.kind {
            QualityKind::Achieved if here => {
                self.on_amount(&change.host, event.application, event.value.max(0) as f64, view.now);
                // The leader of a subordinate group sees the hosts of that group, not of this one.
                if !is_group(event.application) {
                    let same_for = Nanos::new(event.other.max(0).unsigned_abs());
                    self.split.member_changed(view.now - same_for);
                }
            }
            QualityKind::Want if here => {
                let want = want_of(event.other, event.value, event.request as u32);
                self.on_want(&change.host, event.application, want, view.now);
                self.lead(view, decisions);
            }
            // A leader that has not noticed the partition yet would grant again what this member has given up.
            QualityKind::Grant if here && self.split.state() == SplitState::Nothing => {}
            QualityKind::Grant if here => {
                let Some(want) = self.locals.get(&event.application).copied() else { return };
                let child = child_number(view.host, event.application);
                if self.apply(event.application, event.value.max(0), child, decisions) {
                    // The leader may hand out a decrease only after this report.
                    self.send_want(event.application, want, &change.host, view, decisions);
                }
            }
            QualityKind::Grant if above && event.application == group_number(&self.group) => {
                self.granted = Some(event.value as f64);
                self.lead(view, decisions);
                self.send_total(view, decisions);
            }
            _ => {}
        }
    }
}

impl Controller for GroupController {
    fn name(&self) -> &str {
        &self.name
    }

    fn interests(&self) -> Vec<Interest> {
        let above = self.parent.iter().map(|parent| Interest::on(parent, Topic::Control));
        let own = [Interest::on(&self.channel, Topic::Control), Interest::anywhere(Topic::Members)];
        own.into_iter().chain(above).collect()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        match &change.what {
            ChangeKind::Joined(Registration { application, group, .. }) if *group == self.group => {
                *self.members.entry((change.host.clone(), application.clone())).or_default() += 1;
                self.next = view.now;
            }
            ChangeKind::Left(Registration { application, group, .. }) if *group == self.group => {
                self.member_left(&change.host, application);
                self.next = view.now;
            }
            ChangeKind::HostGone => {
                self.host_gone(&change.host);
                self.look(view.now);
                self.lead(view, decisions);
            }
            ChangeKind::Control(event) => self.on_event(change, event, view, decisions),
            _ => {}
        }
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        self.next = view.now + REFRESH;
        self.look(view.now);
        self.give_up(view, decisions);
        self.send_wants(view, decisions);
        self.lead(view, decisions);
        self.send_total(view, decisions);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        Some(self.next)
    }
}

/// A range as an application states it. An amount below zero would leave the others more than there is.
fn want_of(least: i64, most: i64, importance: u32) -> Want {
    Want::range(least.max(0) as f64, most.max(0) as f64, importance)
}

fn group_channel(group: &Name) -> Option<ChannelId> {
    Some(ChannelId { plane: Plane::Quality, name: format!("group.{group}").parse().ok()? })
}

/// The number of a group as a child; applications of hosts count from 1 and stay below.
fn group_number(group: &Name) -> AppId {
    AppId(u64::from(AttributeId::of(group.as_str()).0) | 1 << 31)
}

fn is_group(application: AppId) -> bool {
    application.0 >= 1 << 31
}

/// One number for an application of a host; a group has the same number under every leader.
fn child_number(host: &Name, application: AppId) -> u64 {
    if is_group(application) {
        return application.0;
    }
    u64::from(AttributeId::of(host.as_str()).0) << 32 | (application.0 & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::super::Readings;
    use super::*;

    const PLAYER: AppId = AppId(7);

    /// The group `video` with 100 units on the host `a`, which leads it.
    struct Alone {
        group: GroupController,
        host: Name,
    }

    impl Alone {
        fn new() -> Alone {
            let (name, resource) = ("video".parse().unwrap(), AttributeId::of("app.cpu_most"));
            let group = GroupController::new(&name, None, 3, resource, 100).unwrap();
            Alone { group, host: "a".parse().unwrap() }
        }

        fn call(&mut self, at: u64, call: impl FnOnce(&mut GroupController, &View<'_>, &mut Decisions)) -> Vec<i64> {
            let (readings, mut decisions) = (Readings::new(1), Vec::new());
            let view = View { host: &self.host, now: Instant::ZERO + Nanos::from_millis(at), readings: &readings };
            call(&mut self.group, &view, &mut decisions);
            let amount = |decision| if let Decision::Apply { amount, .. } = decision { Some(amount) } else { None };
            decisions.into_iter().filter_map(amount).collect()
        }

        fn changes(&mut self, at: u64, host: &str, channel: Option<ChannelId>, what: ChangeKind) {
            let change = Change { channel, host: host.parse().unwrap(), what };
            self.call(at, |group, view, decisions| group.changed(&change, view, decisions));
        }

        /// The amounts that are applied from `from` to `to`, in milliseconds.
        fn applied(&mut self, from: u64, to: u64) -> Vec<i64> {
            let times = (from..to).step_by(500);
            times.flat_map(|at| self.call(at, |group, view, decisions| group.woken(view, decisions))).collect()
        }

        fn registration(&self) -> Registration {
            let (application, group) = ("player".parse().unwrap(), self.group.group.clone());
            Registration { application, group, parent: None, level: 3, qos: Vec::new() }
        }

        fn joins(&mut self, at: u64) {
            self.group.local(PLAYER, 10, 80, 0);
            self.changes(at, "a", None, ChangeKind::Joined(self.registration()));
        }
    }

    #[test]
    fn the_amount_of_an_application_that_starts_again_is_applied_again() {
        let mut alone = Alone::new();
        alone.joins(0);
        assert_eq!(alone.applied(0, 5_000), [0, 80], "a new leader hands out nothing at first");
        alone.group.forget_local(&"a".parse().unwrap(), PLAYER);
        alone.changes(5_000, "a", None, ChangeKind::Left(alone.registration()));
        assert_eq!(alone.applied(5_000, 6_000), [0_i64; 0], "it is not there");
        alone.joins(6_000);
        assert_eq!(alone.applied(6_000, 20_000), [0, 80]);
    }

    #[test]
    fn a_want_below_zero_leaves_the_others_no_more_than_there_is() {
        let mut alone = Alone::new();
        alone.joins(0);
        alone.group.local(PLAYER, -1_000, 0, 0);
        alone.group.local(AppId(8), 0, 500, 1);
        assert_eq!(alone.applied(0, 5_000).into_iter().max(), Some(100));
    }

    #[test]
    fn a_host_that_reports_very_many_children_fills_no_memory() {
        let mut alone = Alone::new();
        alone.joins(0);
        alone.applied(0, 5_000);
        for child in 0..5_000 {
            let event = alone.group.event(QualityKind::Achieved, 1, 0, Instant::ZERO);
            let what = ChangeKind::Control(QualityEvent { application: AppId(child), ..event });
            alone.changes(5_000, "b", Some(alone.group.channel.clone()), what);
        }
        assert_eq!((alone.group.given.len(), alone.group.homes.len()), (MOST_OF_A_HOST + 1, MOST_OF_A_HOST + 1));
        alone.applied(5_000, 10_000);
        assert_eq!((alone.group.given.len(), alone.group.homes.len()), (1, 1), "they are silent");
    }
}
