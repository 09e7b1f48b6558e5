//! Checks of a subscription request before anything is created: the receiving process, the events, and the parts.

use std::collections::BTreeMap;

use qfabric_ecode::Program;
use qfabric_types::api::ecalls::{CHANNEL_SERVICE, OnFault, ServiceInfo, Step, SubscriptionRequest};
use qfabric_types::api::{ApplicationScope, Problem};
use qfabric_types::channel::Name;
use qfabric_types::format::Format;

use super::plan::Plan;
use super::problems;
use crate::auth::{self, Peer, Target};

/// Finds the process that receives the events, and checks that it runs and belongs to the caller. If the request does
/// not name it, it is the calling process for a subscription with a lease, and `only_pid` for any other. Only root may
/// subscribe without a receiving process; then the result is `None`.
pub(super) fn receiver(peer: Peer, request: &mut SubscriptionRequest) -> Result<Option<Target>, Problem> {
    if request.process_id == 0 {
        request.process_id = match request.lease {
            Some(_) => peer.pid,
            None => request.only_pid.unwrap_or(0),
        };
    }
    match (request.process_id, peer.owner.uid) {
        (0, 0) => Ok(None),
        (0, _) => {
            Err(problems::chain("the request names no process", "name one of your processes as process_id or only_pid"))
        }
        (pid, _) => auth::target(peer, pid, ApplicationScope::Program).map(Some),
    }
}

/// A user without a grant for the whole service receives only the events of one of the user's processes: the
/// receiving process, if the request names no other.
pub(super) fn restrict(
    peer: Peer,
    request: &mut SubscriptionRequest,
    service: &ServiceInfo,
    granted: bool,
) -> Result<Option<Target>, Problem> {
    if !granted && !service.concerns_process {
        return Err(problems::not_granted(&service.name, peer.owner.uid));
    }
    if !granted && request.only_pid.is_none() {
        request.only_pid = Some(request.process_id);
    }
    let Some(pid) = request.only_pid else { return Ok(None) };
    if !service.concerns_process {
        let message = format!("the events of {} do not belong to a process", service.name);
        return Err(problems::chain(message, "remove only_pid"));
    }
    auth::target(peer, pid, ApplicationScope::Program).map(Some)
}

pub(super) fn check_signal_target(plan: &Plan, target: Option<&Target>) -> Result<(), Problem> {
    match plan.in_daemon.contains(&Step::Signal) && target.is_none() {
        true => Err(problems::chain("no process is named to receive the signal", "give process_id")),
        false => Ok(()),
    }
}

/// A chain must not submit events to the channel from which it gets them.
pub(super) fn check_no_loop(service: &ServiceInfo, channel: &Name) -> Result<(), Problem> {
    let source = service.name.strip_prefix(CHANNEL_SERVICE).map(|name| name.split('/').next().unwrap_or(name));
    match source == Some(channel.as_str()) {
        true => Err(problems::chain(
            format!("the chain submits the events of channel {channel} to the same channel"),
            "name another channel",
        )),
        false => Ok(()),
    }
}

/// `on_fault: pass` lets the unchanged event continue, so it needs a chain in which no handler changes the format.
pub(super) fn check_fault_policy(request: &SubscriptionRequest, programs: &[Program]) -> Result<(), Problem> {
    let changes = programs
        .iter()
        .any(|program| program.output.as_ref().is_some_and(|output| !output.is_laid_out_as(&program.input)));
    match request.on_fault == OnFault::Pass && changes {
        true => Err(problems::chain(
            "on_fault is pass, but a handler changes the format of the event",
            "use on_fault block",
        )),
        false => Ok(()),
    }
}

pub(super) fn no_such_field(format: &Format, field: &str) -> Problem {
    let known: Vec<_> = format.fields.iter().map(|field| field.name.as_str()).collect();
    problems::chain(
        format!("struct {} has no integer field {field}", format.name),
        format!("it has {}", known.join(", ")),
    )
}

/// Maps the names of attributes to their numbers; refuses a name that no handler uses.
pub(super) fn numbered<'a>(
    names: &[String],
    values: impl IntoIterator<Item = (&'a String, &'a i64)>,
) -> Result<BTreeMap<usize, i64>, Problem> {
    let number = |(name, value): (&String, &i64)| {
        let found = names.iter().position(|known| known == name);
        found.map(|number| (number, *value)).ok_or_else(|| {
            let known = format!("they use: {}", names.join(", "));
            problems::chain(format!("no handler uses attribute {name}"), known)
        })
    };
    values.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::Owner;

    #[test]
    fn attributes_are_numbered_by_their_names_and_unknown_ones_refused() {
        let names = ["a".to_owned(), "b".to_owned()];
        let values = BTreeMap::from([("b".to_owned(), 7)]);
        assert_eq!(numbered(&names, &values).unwrap(), BTreeMap::from([(1, 7)]));
        let unknown = BTreeMap::from([("c".to_owned(), 7)]);
        assert!(numbered(&names, &unknown).unwrap_err().next_step.contains("a, b"));
    }

    #[test]
    fn a_user_must_name_a_process_and_root_need_not() {
        let peer = |uid| Peer { pid: std::process::id() as i32, owner: Owner { uid, gid: uid } };
        let mut request = SubscriptionRequest::default();
        assert!(receiver(peer(0), &mut request).unwrap().is_none());
        assert_eq!(receiver(peer(5), &mut request).unwrap_err().code, "chain");
    }
}
