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

use super::super::mailbox::{Audience, Mailbox, Notification};
use super::refused;

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
    mailbox: Arc<Mailbox>,
    names: BTreeMap<AppId, Name>,
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
            ChangeKind::Left(left) if here(left) => self.inner.forget_local(number_of(&self.group, &left.application)),
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
        self.note(change, view);
        self.inner.changed(change, view, decisions);
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        self.inner.woken(view, decisions);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.inner.next_wakeup()
    }
}

impl Members {
    pub(super) fn new(group: &Name, mailbox: &Arc<Mailbox>) -> Members {
        Members { group: group.clone(), mailbox: mailbox.clone(), names: BTreeMap::new() }
    }

    /// Name of the application with this number.
    pub(super) fn name(&self, application: AppId) -> Option<&Name> {
        self.names.get(&application)
    }

    /// Records the names of applications.
    pub(super) fn on_change(&mut self, change: &Change, host: &Name) {
        if let ChangeKind::Joined(Registration { application, group, .. }) = &change.what
            && (group, &change.host) == (&self.group, host)
        {
            self.names.insert(number_of(group, application), application.clone());
        }
    }

    /// Notifies a member of a decision about it; returns whether there is such a member.
    pub(super) fn carry_out(&self, decision: &Decision) -> bool {
        let Decision::Apply { application, attribute, amount } = decision else { return false };
        let Some(name) = self.names.get(application) else { return false };
        let Ok(channel) = format!("group.{}", self.group).parse() else { return false };
        self.mailbox.tell(Notification {
            channel: ChannelId { plane: Plane::Quality, name: channel },
            attribute: *attribute,
            subject: name.to_string(),
            amount: Some(*amount),
            audience: Audience::Member(name.clone()),
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
