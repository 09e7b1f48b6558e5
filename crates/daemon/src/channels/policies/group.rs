//! Divides a group's resource among its applications on all hosts: the applications on this host, and their
//! notifications.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_channel::Registration;
use qfabric_host::manager::policies::member_of;
use qfabric_host::manager::{Change, ChangeKind, Controller, Decision, Decisions, GroupController, Interest, View};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::GroupPolicy;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::AttributeId;
use qfabric_types::{AppId, Instant};

use super::super::mailbox::{Adjusted, Audience, Mailbox, Notification};
use super::cpu::is_cpu;
use super::refused;
use crate::auth::Peer;

/// The metric that states how important an application is.
const IMPORTANCE: &str = "importance";

/// The controller: the registrations of applications are their demands.
pub(super) struct GroupHere {
    inner: GroupController,
    group: Name,
    /// Range of a registration that states an application's demand; names of metrics have no dots.
    metric: String,
}

/// Decisions about the group's applications here.
pub(super) struct Members {
    group: Name,
    policy: Name,
    /// The user who answers for the policy.
    peer: Peer,
    /// Only this user's applications are notified; none: those of all users.
    user: Option<u32>,
    mailbox: Arc<Mailbox>,
    /// With the number of registrations: one may end while another of the same name goes on.
    names: BTreeMap<AppId, (Name, u32)>,
}

impl GroupHere {
    /// Refuses a policy with an invalid resource.
    pub(super) fn new(policy: &GroupPolicy) -> Result<GroupHere, Problem> {
        let GroupPolicy { group, parent, level, attribute, capacity, importance, .. } = policy;
        if !(1..=4).contains(level) {
            return Err(refused::out_of_range("level", level, "1 (connection) to 4 (system)"));
        }
        if parent.is_none() && *capacity <= 0 {
            return Err(refused::out_of_range("capacity", capacity, "more than 0, or a parent that grants it"));
        }
        let id = AttributeId::of(attribute);
        let inner = GroupController::new(group, parent.as_ref(), *level, id, *capacity);
        let inner = inner.ok_or_else(|| refused::group_name(group))?.with_importance(*importance);
        Ok(GroupHere { inner, group: group.clone(), metric: metric_of(attribute) })
    }

    /// Records that an application of this host joined, left, or changed its demand.
    fn note(&mut self, change: &Change, view: &View<'_>) {
        let here = |registration: &Registration| change.host == *view.host && registration.group == self.group;
        match &change.what {
            ChangeKind::Joined(joined) if here(joined) => {
                let range = |metric: &str| joined.qos.iter().find(|range| range.metric.as_str() == metric);
                let Some(wanted) = range(&self.metric) else { return };
                let importance = range(IMPORTANCE).map_or(0, |range| range.max.clamp(0, 1_000) as u32);
                self.inner.local(number_of(&self.group, &joined.application), wanted.min, wanted.max, importance);
            }
            // Otherwise another registration of this name goes on.
            ChangeKind::Left(left) if here(left) && !self.inner.has(view.host, &left.application) => {
                self.inner.forget_local(view.host, number_of(&self.group, &left.application));
            }
            _ => {}
        }
    }
}

impl Controller for GroupHere {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn interests(&self) -> Vec<Interest> {
        self.inner.interests()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        self.inner.changed(change, view, decisions);
        self.note(change, view);
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        self.inner.woken(view, decisions);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.inner.next_wakeup()
    }
}

impl Members {
    pub(super) fn new(
        group: &Name,
        policy: &Name,
        (peer, user): (Peer, Option<u32>),
        mailbox: &Arc<Mailbox>,
    ) -> Members {
        let (group, policy, mailbox) = (group.clone(), policy.clone(), mailbox.clone());
        Members { group, policy, peer, user, mailbox, names: BTreeMap::new() }
    }

    /// Name of the application with this number.
    pub(super) fn name(&self, application: AppId) -> Option<&Name> {
        self.names.get(&application).map(|(name, _)| name)
    }

    /// Records the names of applications. Returns the application whose last registration ended.
    pub(super) fn on_change(&mut self, change: &Change, host: &Name) -> Option<(AppId, Name)> {
        let (ChangeKind::Joined(one) | ChangeKind::Left(one)) = &change.what else { return None };
        let Registration { application, group, .. } = one;
        if (group, &change.host) != (&self.group, host) {
            return None;
        }
        let number = number_of(group, application);
        if matches!(change.what, ChangeKind::Joined(_)) {
            self.names.entry(number).or_insert_with(|| (application.clone(), 0)).1 += 1;
            return None;
        }
        let (_, registrations) = self.names.get_mut(&number)?;
        *registrations -= 1;
        if *registrations > 0 {
            return None;
        }
        self.names.remove(&number).map(|(name, _)| (number, name))
    }

    /// Notifies a member of a decision about it, and changes its contract if the decision is about CPU time; returns whether
    /// there is such a member.
    pub(super) fn carry_out(&self, decision: &Decision) -> bool {
        let Decision::Apply { application, attribute, amount } = decision else { return false };
        let Some(name) = self.name(*application) else { return false };
        let Ok(channel) = format!("group.{}", self.group).parse() else { return false };
        let (application, attribute, amount) = (*application, *attribute, *amount);
        let channel = ChannelId { plane: Plane::Quality, name: channel };
        if is_cpu(attribute) {
            let (policy, member) = (self.policy.clone(), Some((channel.clone(), name.clone())));
            self.mailbox.adjust(Adjusted { policy, peer: self.peer, application, member, attribute, amount });
        }
        let (subject, audience) = (name.to_string(), Audience::Member(name.clone()));
        self.mailbox.tell(Notification {
            channel,
            attribute,
            subject,
            amount: Some(amount),
            audience,
            user: self.user,
        });
        true
    }
}

/// `app.cpu_most` becomes `cpu_most`, `net.bytes` becomes `net_bytes`.
fn metric_of(attribute: &str) -> String {
    attribute.strip_prefix("app.").unwrap_or(attribute).replace('.', "_")
}

/// Number of an application in its group, the same on every host; below the numbers of groups.
pub(in crate::channels) fn number_of(group: &Name, application: &Name) -> AppId {
    member_of(group, application)
}
