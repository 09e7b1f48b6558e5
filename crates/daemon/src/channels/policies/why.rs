//! Explanations of the last decisions of each policy: their causes, and what was compared.

use std::collections::VecDeque;

use qfabric_host::manager::{Change, ChangeKind, Decision, Reasons};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::Explanation;
use qfabric_types::channel::Name;
use qfabric_types::monitor::AttributeId;
use qfabric_types::{AppId, Instant};

use super::super::lock;
use super::notify::attribute_name;
use super::{Policies, Running, refused};
use crate::auth::Peer;

/// Number of explanations that are kept for a policy; a further one displaces the oldest.
const KEPT: usize = 32;
/// Number of decisions of one call that an explanation names.
const NAMED: usize = 8;

/// The last explanations of a policy, oldest first.
#[derive(Debug, Default)]
pub(super) struct Explanations(VecDeque<(Instant, Reasons)>);

impl Explanations {
    pub(super) fn push(&mut self, now: Instant, reasons: Reasons) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back((now, reasons));
    }

    fn list<'e>(&'e self, policy: &'e Name) -> impl Iterator<Item = Explanation> + 'e {
        self.0.iter().map(|(at, reasons)| {
            let Reasons { cause, bottleneck, decision, candidates } = reasons.clone();
            Explanation { policy: policy.clone(), at_ns: at.get(), cause, bottleneck, decision, candidates }
        })
    }
}

/// Reasons for decisions of a controller that gives none itself: its input and its decisions; `None` for decisions that
/// only pass something on.
pub(super) fn plain_reasons(
    change: Option<&Change>,
    decisions: &[Decision],
    key: impl Fn(AppId, AttributeId) -> (String, AttributeId),
) -> Option<Reasons> {
    let words = |decision: &Decision| match decision {
        Decision::Apply { application, attribute, amount } => {
            let (subject, attribute) = key(*application, *attribute);
            Some(format!("{} {amount} for {subject}", attribute_name(attribute)))
        }
        Decision::Release { application, attribute } => {
            let (subject, attribute) = key(*application, *attribute);
            Some(format!("{} released for {subject}", attribute_name(attribute)))
        }
        Decision::Parameter { filter, parameter, value } => Some(format!("{} {parameter} = {value}", filter.name)),
        Decision::Ask(_) => Some("other hosts are asked".to_owned()),
        Decision::Tell { .. } => None,
    };
    let mut named = decisions.iter().filter_map(words);
    let first: Vec<String> = named.by_ref().take(NAMED).collect();
    let more = named.count();
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let decision = (!first.is_empty()).then(|| first.join(", ") + &more)?;
    let cause = change.map_or_else(|| "time has passed".to_owned(), cause_of);
    Some(Reasons { cause, decision, ..Reasons::default() })
}

fn cause_of(change: &Change) -> String {
    let host = &change.host;
    match &change.what {
        ChangeKind::Reading(reading) => {
            format!("{} {} of host {host}", attribute_name(reading.attribute), reading.value)
        }
        ChangeKind::Control(event) => format!("a control event about {} from host {host}", event.subject),
        ChangeKind::Granted { attribute, amount, .. } => format!("{} {amount} was granted", attribute_name(*attribute)),
        ChangeKind::HostGone => format!("host {host} is gone"),
        ChangeKind::Joined(one) => format!("{} joined {} on host {host}", one.application, one.group),
        ChangeKind::Left(one) => format!("{} left {} on host {host}", one.application, one.group),
        ChangeKind::SourceJoined => format!("a source of host {host} joined"),
        ChangeKind::Answer { .. } => "other hosts answered".to_owned(),
    }
}

impl Policies {
    /// The last decisions of the policies with this name, or of this channel or group; oldest first. As in the timeline,
    /// a user sees those of own policies, and an administrator all.
    pub(crate) fn explanations(&self, peer: Peer, name: &Name) -> Result<Vec<Explanation>, Problem> {
        let running = lock(&self.running);
        let is_meant = |own: &Name, running: &Running| {
            let kind = running.policy.as_kind();
            own == name || kind.group() == Some(name) || kind.channels().contains(&name)
        };
        let may_see = |running: &Running| peer.administers() || running.uid == Some(peer.owner.uid);
        let meant = running.iter().filter(|(own, running)| is_meant(own, running));
        let (seen, others): (Vec<_>, Vec<_>) = meant.partition(|(_, running)| may_see(running));
        if seen.is_empty() {
            let other = others.first().map(|(own, running)| refused::not_yours(own, running.uid));
            return Err(other.unwrap_or_else(|| refused::unexplained(name)));
        }
        let mut all: Vec<Explanation> = Vec::new();
        seen.into_iter().for_each(|(own, running)| all.extend(lock(&running.record).why.list(own)));
        all.sort_by_key(|one| one.at_ns);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_explanation_makes_room() {
        let (mut all, name) = (Explanations::default(), "hold.video".parse().unwrap());
        (0..100).for_each(|at| all.push(Instant::new(at), Reasons::default()));
        let kept: Vec<u64> = all.list(&name).map(|one| one.at_ns).collect();
        assert_eq!((kept.len(), kept[0], kept[KEPT - 1]), (KEPT, 68, 99));
    }

    #[test]
    fn many_decisions_of_one_call_are_counted_and_the_first_are_named() {
        let apply =
            |amount| Decision::Apply { application: AppId(1), attribute: AttributeId::of("app.rate_milli"), amount };
        let decisions: Vec<Decision> = (0..20).map(apply).collect();
        let reasons = plain_reasons(None, &decisions, |_, attribute| ("b".to_owned(), attribute)).unwrap();
        assert!(reasons.decision.starts_with("app.rate_milli 0 for b, "), "{reasons:?}");
        assert!(reasons.decision.ends_with("app.rate_milli 7 for b, and 12 more"), "{reasons:?}");
        assert_eq!(
            (reasons.cause.as_str(), plain_reasons(None, &[], |_, attribute| (String::new(), attribute))),
            ("time has passed", None)
        );
    }
}
