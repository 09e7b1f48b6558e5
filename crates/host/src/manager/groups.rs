//! Groups of the QoS tree whose members are on many hosts.
//!
//! ```text
//!   member ──Want──> leader of its group ──Want (the sum)──> leader of the parent group …
//!   member <─Grant── leader of its group <─Grant──────────── leader of the parent group …
//! ```
//! Every member host runs the same controller; the host with the first name among the members leads, so there is no
//! host that the group cannot lose. A leader knows its members' wants and its own grant, nothing above or below.
//! Wants are said again every [`REFRESH`], each with what the member has: a new leader needs nothing from the old one.
//! Source: Q-channels paper §3.3.
//!
//! A group that is cut in two has two leaders. Each divides what is in its *pot*: all there is while the group is whole;
//! while somebody is missing, that less what the missing had, or what its own members have. When the pot becomes whole
//! again, or empty, says [`Split`]. So all parts together never hand out more than there is, but for [`LISTEN`] after a
//! change of members.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use qfabric_channel::Registration;
use qfabric_control::adapt::group::{Division, Group, Want};
use qfabric_control::adapt::split::{Split, SplitState};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, QualityText};
use qfabric_types::{AppId, Instant, Nanos};

use super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, Topic, View};

/// How often a want is said again.
const REFRESH: Nanos = Nanos::from_millis(1_000);

/// After so long without a want a child is forgotten: it went and its word was lost.
const FORGET: Nanos = Nanos::from_millis(3_500);

/// So long a new leader only listens: what the old one has told members has reached them then, and they have said so.
const LISTEN: Nanos = Nanos::from_millis(1_500);

/// What a leader has to give.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pool {
    /// It does not lead.
    Not,
    /// It has just begun to lead.
    Listening { since: Instant },
    /// This much.
    Has(f64),
}

/// What a child has, as its leader knows.
#[derive(Clone, Copy, Debug)]
struct Given {
    amount: f64,
    /// No more than this, where the last words have not reached it: it has not said yet that it has less.
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
    /// What there is to divide, where there is no parent.
    capacity: f64,
    members: BTreeSet<(Name, Name)>,
    locals: BTreeMap<AppId, Want>,
    children: Group,
    homes: BTreeMap<u64, (Name, AppId, Instant)>,
    granted: Option<f64>,
    told: BTreeMap<u64, i64>,
    split: Split<Name>,
    /// The last answer of [`Split`].
    standing: SplitState,
    pool: Pool,
    given: BTreeMap<u64, Given>,
    next: Instant,
}

impl GroupController {
    /// For a group's resource. `capacity` is what a group without a parent divides; `level` is that of
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
            members: BTreeSet::new(),
            locals: BTreeMap::new(),
            children: Group::new(division),
            homes: BTreeMap::new(),
            granted: None,
            told: BTreeMap::new(),
            split: Split::new(Instant::ZERO),
            standing: SplitState::Share,
            pool: Pool::Not,
            given: BTreeMap::new(),
            next: Instant::ZERO,
        })
    }

    /// How important the group is to its parent.
    pub fn with_importance(mut self, importance: u32) -> Self {
        self.importance = importance;
        self
    }

    /// An application of this host that is in the group wants so much.
    pub fn with_local(mut self, application: AppId, least: i64, most: i64, importance: u32) -> Self {
        self.local(application, least, most, importance);
        self
    }

    /// An application of this host came to the group, or wants something else.
    pub fn local(&mut self, application: AppId, least: i64, most: i64, importance: u32) {
        self.locals.insert(application, Want::range(least as f64, most as f64, importance));
    }

    /// An application of this host left: what it had goes to the others when it has not been heard of for a while.
    pub fn forget_local(&mut self, application: AppId) {
        self.locals.remove(&application);
    }

    fn leads(&self, host: &Name) -> bool {
        self.members.first().is_some_and(|(first, _)| first == host)
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

    /// Says what this host's applications have and want to the leader, who may be this host.
    fn say_wants(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        let locals: Vec<_> = self.locals.iter().map(|(id, want)| (*id, *want)).collect();
        for (application, want) in locals {
            if self.leads(view.host) {
                let has = self.told.get(&child_number(view.host, application)).copied().unwrap_or(0);
                self.has(view.host, application, has as f64);
                self.wanted(view.host, application, want, view.now);
                continue;
            }
            let Some((leader, _)) = self.members.first() else { return };
            self.say_want(application, want, leader, view, decisions);
        }
    }

    fn say_want(&self, application: AppId, want: Want, leader: &Name, view: &View<'_>, decisions: &mut Decisions) {
        let has = self.told.get(&child_number(view.host, application)).copied().unwrap_or(0);
        self.say(&self.channel, &Recipient::Host(leader.clone()), (application, has), want, view, decisions);
    }

    /// First what somebody has, then what it wants.
    fn say(
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

    fn wanted(&mut self, host: &Name, application: AppId, want: Want, now: Instant) {
        let child = child_number(host, application);
        self.homes.insert(child, (host.clone(), application, now));
        self.children.want(child, want);
    }

    /// A child says what it has: a new leader believes it, one that has given it something knows better.
    fn has(&mut self, host: &Name, application: AppId, amount: f64) {
        let child = child_number(host, application);
        match &mut self.pool {
            Pool::Not => {}
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

    /// The leader divides its pot. Increases wait until other children have given back the same amount, because a
    /// partition may come between an increase and the decrease that pays for it.
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
            self.apply(application, grant as i64, child, decisions);
        } else {
            let event = QualityEvent { application, ..self.event(QualityKind::Grant, grant as i64, 0, view.now) };
            decisions.push(Decision::Tell { channel: self.channel.clone(), to: Recipient::Host(host), event });
        }
    }

    /// What a leader knows is of no use once another leads.
    fn follow(&mut self) {
        if self.pool != Pool::Not {
            self.pool = Pool::Not;
            self.given.clear();
            self.homes.clear();
            self.children = Group::new(self.children.division());
        }
    }

    /// What there is to divide now; nothing is divided while the leader listens.
    fn fill(&mut self, now: Instant) -> Option<f64> {
        let standing = self.look(now);
        let most = if self.parent.is_none() { self.capacity } else { self.granted.unwrap_or(f64::MAX) };
        self.pool = match (self.pool, standing) {
            (Pool::Not, _) => Pool::Listening { since: now },
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

    /// Who is there: looked at by all, since each may have to lead.
    fn look(&mut self, now: Instant) -> SplitState {
        let hosts = self.members.iter().map(|(host, _)| host.clone()).collect();
        self.standing = self.split.look(&hosts, now);
        self.standing
    }

    /// The majority part takes over this part's amount, so a member gives it up by itself: its leader may be gone.
    fn give_up(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        if self.standing != SplitState::Nothing {
            return;
        }
        for application in self.locals.keys().copied().collect::<Vec<_>>() {
            self.apply(application, 0, child_number(view.host, application), decisions);
        }
    }

    fn pool(&self) -> Option<f64> {
        if let Pool::Has(amount) = self.pool { Some(amount) } else { None }
    }

    fn say_total(&self, view: &View<'_>, decisions: &mut Decisions) {
        let Some(parent) = self.parent.clone().filter(|_| self.leads(view.host)) else { return };
        let total = self.children.total(Want { importance: self.importance, ..Want::NOTHING });
        let has = self.pool().unwrap_or(0.0).min(self.granted.unwrap_or(f64::MAX)).max(self.handed_out());
        // A group is a child like an application; its number cannot be one of those.
        self.say(&parent, &Recipient::All, (group_number(&self.group), has as i64), total, view, decisions);
    }

    /// Returns whether the amount changed.
    fn apply(&mut self, application: AppId, amount: i64, child: u64, decisions: &mut Decisions) -> bool {
        let changes = self.told.insert(child, amount) != Some(amount);
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

    /// What a child had that is silent or gone may still be in use: it is not in the pot until the group is whole.
    fn lose(&mut self, child: u64) {
        self.homes.remove(&child);
        self.children.leave(child);
        let had = self.given.remove(&child).map_or(0.0, |given| given.at_most);
        if let Pool::Has(pool) = &mut self.pool {
            *pool = (*pool - had).max(0.0);
        }
    }

    fn vanished(&mut self, gone: &Name) {
        self.members.retain(|(host, _)| host != gone);
        let children: Vec<u64> =
            self.homes.iter().filter(|(_, (host, ..))| host == gone).map(|(child, _)| *child).collect();
        children.into_iter().for_each(|child| self.lose(child));
    }

    fn left(&mut self, host: &Name, application: &Name) {
        self.members.remove(&(host.clone(), application.clone()));
        if self.members.iter().all(|(other, _)| other != host) {
            self.split.left(host);
        }
    }

    fn said(&mut self, change: &Change, event: &QualityEvent, view: &View<'_>, decisions: &mut Decisions) {
        let here = change.channel.as_ref() == Some(&self.channel);
        let above = change.channel.is_some() && change.channel == self.parent;
        match event.kind {
            QualityKind::Achieved if here => {
                self.has(&change.host, event.application, event.value.max(0) as f64);
                // What a subordinate group's leader sees are other hosts than those of this group.
                if !is_group(event.application) {
                    let same_for = Nanos::new(event.other.max(0).unsigned_abs());
                    self.split.member_changed(view.now - same_for);
                }
            }
            QualityKind::Want if here => {
                let want = Want::range(event.other as f64, event.value as f64, event.request as u32);
                self.wanted(&change.host, event.application, want, view.now);
                self.lead(view, decisions);
            }
            // A leader that has not noticed the partition yet would grant again what this member has given up.
            QualityKind::Grant if here && self.standing == SplitState::Nothing => {}
            QualityKind::Grant if here => {
                let Some(want) = self.locals.get(&event.application).copied() else { return };
                let child = child_number(view.host, event.application);
                if self.apply(event.application, event.value, child, decisions) {
                    // The leader may hand out a decrease only after this report.
                    self.say_want(event.application, want, &change.host, view, decisions);
                }
            }
            QualityKind::Grant if above && event.application == group_number(&self.group) => {
                self.granted = Some(event.value as f64);
                self.lead(view, decisions);
                self.say_total(view, decisions);
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
                self.members.insert((change.host.clone(), application.clone()));
                self.next = view.now;
            }
            ChangeKind::Left(Registration { application, group, .. }) if *group == self.group => {
                self.left(&change.host, application);
                self.next = view.now;
            }
            ChangeKind::HostGone => {
                self.vanished(&change.host);
                self.look(view.now);
                self.lead(view, decisions);
            }
            ChangeKind::Control(event) => self.said(change, event, view, decisions),
            _ => {}
        }
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        self.next = view.now + REFRESH;
        self.look(view.now);
        self.give_up(view, decisions);
        self.say_wants(view, decisions);
        self.lead(view, decisions);
        self.say_total(view, decisions);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        Some(self.next)
    }
}

fn group_channel(group: &Name) -> Option<ChannelId> {
    Some(ChannelId { plane: Plane::Quality, name: format!("group.{group}").parse().ok()? })
}

/// A number for a group as a child: applications of hosts count from 1 and stay below.
fn group_number(group: &Name) -> AppId {
    AppId(u64::from(AttributeId::of(group.as_str()).0) | 1 << 31)
}

fn is_group(application: AppId) -> bool {
    application.0 >= 1 << 31
}

/// One number for an application of a host; a group is the same child whoever leads it.
fn child_number(host: &Name, application: AppId) -> u64 {
    if is_group(application) {
        return application.0;
    }
    u64::from(AttributeId::of(host.as_str()).0) << 32 | (application.0 & 0xffff_ffff)
}
