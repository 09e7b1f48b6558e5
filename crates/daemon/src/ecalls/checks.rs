//! Checks of a subscription request before anything is created: the receiving process, the events, and the parts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qfabric_ecode::Program;
use qfabric_ecode::hir::Builtin;
use qfabric_linux::ecalls::HookCost;
use qfabric_types::Owner;
use qfabric_types::api::ecalls::{CHANNEL_SERVICE, OnFault, ServiceInfo, Step, SubscriptionRequest};
use qfabric_types::api::{ApplicationScope, Problem};
use qfabric_types::channel::Name;
use qfabric_types::format::Format;
use qfabric_types::memory::CALL_SERVICE;

use super::plan::{Plan, is_handler};
use super::{inputs, problems};
use crate::auth::{self, Peer, Target};

/// Shortest period of a user's timer.
const SHORTEST_PERIOD: Duration = Duration::from_millis(1);

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

/// Users need a grant for a hook that makes the system calls of all processes slower, although its events are those of
/// an own process; and their timers have a shortest period.
pub(super) fn check_cost(owner: Owner, service: &str, cost: HookCost, granted: bool) -> Result<(), Problem> {
    if cost.slows_system_calls && !granted {
        return Err(problems::slows_system_calls(service, owner.uid));
    }
    match cost.timer {
        Some(period) if owner.uid != 0 && period < SHORTEST_PERIOD => Err(problems::limit(
            &format!("a timer with a period of {period:?} interrupts a CPU too often"),
            format!("{SHORTEST_PERIOD:?}"),
            "nothing: use a longer period or delay, or root",
        )),
        _ => Ok(()),
    }
}

/// Interrupts per second of a timer with this period, rounded up.
pub(super) fn interrupts(period: Option<Duration>) -> u64 {
    let ns = period.map_or(u64::MAX, |period| period.as_nanos() as u64);
    if period.is_some() { 1_000_000_000_u64.div_ceil(ns.max(1)) } else { 0 }
}

pub(super) fn check_signal_target(plan: &Plan, target: Option<&Target>) -> Result<(), Problem> {
    match plan.in_daemon.contains(&Step::Signal) && target.is_none() {
        true => Err(problems::chain("no process is named to receive the signal", "give process_id")),
        false => Ok(()),
    }
}

/// A fast call runs the handlers of one subscription; the hook of a group is not that of a process.
pub(super) fn check_calls(request: &SubscriptionRequest) -> Result<(), Problem> {
    match request.service == CALL_SERVICE && request.group.is_some() {
        true => Err(problems::chain(format!("a group takes no calls of {CALL_SERVICE}"), "remove group")),
        false => Ok(()),
    }
}

/// A chain must not submit events to the channel from which it gets them.
pub(super) fn check_no_loop(service: &ServiceInfo, channel: &Name) -> Result<(), Problem> {
    let is_of_channels = service.name.starts_with(CHANNEL_SERVICE);
    let sources = if is_of_channels { inputs::named(&service.name)? } else { Vec::new() };
    match sources.iter().any(|source| source.channel.name == *channel) {
        true => Err(problems::chain(
            format!("the chain submits the events of channel {channel} to the same channel"),
            "name another channel",
        )),
        false => Ok(()),
    }
}

/// `on_fault: pass` lets the unchanged event continue, so it needs a chain in which no handler changes the format.
pub(super) fn check_fault_policy(request: &SubscriptionRequest, programs: &[Arc<Program>]) -> Result<(), Problem> {
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

/// Refuses what a chain does not bound, or what has no meaning where the handler runs. Each emitted event runs the
/// handlers that follow once more, but the limit of instructions counts them once. In a thread of the daemon, the
/// process and the CPU are not those of the event.
pub(super) fn check_functions(plan: &Plan, programs: &[Arc<Program>]) -> Result<(), Problem> {
    let steps = |of: &[Step]| of.iter().filter(|step| is_handler(**step)).count();
    let in_kernel = steps(&plan.in_kernel);
    for (number, program) in programs.iter().enumerate() {
        let uses = |what| program.uses.builtins.contains(&what);
        if uses(Builtin::Emit) && number + 1 < programs.len() {
            let message = "a handler emits events, but another handler follows";
            return Err(problems::chain(message, "emit only in the last handler of the chain"));
        }
        let absent = [(Builtin::Pid, "pid"), (Builtin::Cpu, "cpu")].into_iter().find(|(what, _)| uses(*what));
        if let (Some((_, name)), true) = (absent, number >= in_kernel) {
            return Err(problems::chain(
                format!("{name}() has no meaning in a handler that runs in the daemon, after the event"),
                format!("use a field of the event, such as input.{name}, or let the handler run in the kernel"),
            ));
        }
    }
    Ok(())
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

    #[test]
    fn a_handler_emits_only_at_the_end_and_asks_for_no_cpu_in_the_daemon() {
        let chain = |in_kernel: &[Step], in_daemon: &[Step], texts: [&str; 2]| {
            let plan = Plan { in_kernel: in_kernel.to_vec(), in_daemon: in_daemon.to_vec() };
            let programs = texts.map(|text| Arc::new(qfabric_ecode::compile(text, &Default::default()).unwrap()));
            check_functions(&plan, &programs).map_err(|problem| problem.message)
        };
        let (named, code) = ([Step::KHandler], [Step::KCode]);
        for (in_kernel, in_daemon) in [(&named[..], &code[..]), (&[], &[Step::KHandler, Step::KCode])] {
            let refused = chain(in_kernel, in_daemon, ["emit(); return 1;", "return 1;"]).unwrap_err();
            assert!(refused.contains("another handler follows"), "{refused}");
            assert_eq!(chain(in_kernel, in_daemon, ["return 1;", "emit(); return now() > 0;"]), Ok(()));
        }
        assert!(chain(&named, &code, ["return 1;", "return cpu();"]).unwrap_err().contains("cpu() has no meaning"));
        assert!(chain(&[], &[Step::KHandler, Step::KCode], ["return pid();", ""]).unwrap_err().contains("pid()"));
        assert_eq!(chain(&named, &code, ["return pid() + cpu();", "return 1;"]), Ok(()), "in the kernel");
    }

    #[test]
    fn a_group_takes_no_fast_calls() {
        let check = |service: &str, group: Option<&str>| {
            let (service, group) = (service.to_owned(), group.map(str::to_owned));
            check_calls(&SubscriptionRequest { service, group, ..Default::default() })
                .map_err(|problem| problem.message)
        };
        assert!(check(CALL_SERVICE, Some("workers")).unwrap_err().contains("a group takes no calls of app.call"));
        assert_eq!([check(CALL_SERVICE, None), check("timer", Some("workers"))], [Ok(()), Ok(())]);
    }

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
