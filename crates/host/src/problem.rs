//! Refusals of a host beyond those of its supervisor: stable codes, values, limits and next steps.

use qfabric_control::guarantee::NoGuarantee;
use qfabric_types::api::Problem;
use qfabric_types::{AppId, MechanismName, Owner, ThreadId};

use crate::host::FEEDBACK;

/// The guarantee of the class is not possible for this contract.
pub(crate) fn no_guarantee(reason: &NoGuarantee) -> Problem {
    Problem::new(reason.code(), reason.to_string(), reason.next_step())
}

pub(crate) fn not_found(app: AppId) -> Problem {
    let message = format!("there is no application {app}");
    Problem::new("not_found", message, "list the applications with `qfabric status`")
}

pub(crate) fn too_many_applications(limit: usize) -> Problem {
    let message = format!("{limit} applications hold contracts, which is the limit");
    Problem::new("too_many_applications", message, "end one of them, or raise limits.max_applications")
}

pub(crate) fn too_many_threads(threads: usize, limit: usize) -> Problem {
    let message = format!("the program has {threads} threads, at most {limit} can be covered");
    Problem::new("too_many_threads", message, "cover one thread instead, or raise limits.max_threads")
}

pub(crate) fn no_threads() -> Problem {
    let message = "the program has no thread that a contract could cover".to_owned();
    Problem::new("not_found", message, "give a process that is running")
}

pub(crate) fn already_covered(thread: ThreadId, app: AppId) -> Problem {
    let message = format!("application {app} covers thread {thread} already");
    Problem::new("already_covered", message, format!("change the contract of application {app}, or end it first"))
}

pub(crate) fn not_permitted(owner: Owner) -> Problem {
    let message = format!("user {} may not hold reservations: the user's maximum is 0 CPU", owner.uid);
    Problem::new(
        "not_permitted",
        message,
        "ask the administrator to raise the maximum under [limits.users] or limits.default_user",
    )
}

/// The contract needs an ability that this mechanism lacks. `serving`: the mechanisms of this machine that can serve the
/// contract.
pub(crate) fn incapable(mechanism: &str, what: &str, serving: &[MechanismName]) -> Problem {
    let message = format!("the mechanism {mechanism} cannot give {what}");
    let other = match serving {
        [] => None,
        names => Some(names.iter().map(|name| format!("--mechanism {name}")).collect::<Vec<_>>().join(" or ")),
    };
    let remedy = match what {
        FEEDBACK => "ask for a fixed service (--service TIME with --period TIME, or --fixed CPUS)",
        _ => "omit the option",
    };
    let next_step = match other {
        Some(other) => format!("use {other}, or {remedy}"),
        None => format!("{remedy}; no other mechanism of this machine can give it (see `qfabric doctor`)"),
    };
    Problem::new("unavailable", message, next_step)
}

#[cfg(test)]
mod tests {
    use qfabric_types::SERVICE;

    use super::*;

    #[test]
    fn a_missing_ability_names_the_mechanisms_that_serve_the_contract_and_no_others() {
        let next = |what, serving: &[MechanismName]| incapable("deadline", what, serving).next_step;
        assert_eq!(next("a window", &[MechanismName::Ext]), "use --mechanism ext, or omit the option");
        let both = next(SERVICE, &[MechanismName::Ext, MechanismName::Dispatcher]);
        assert_eq!(both, "use --mechanism ext or --mechanism dispatcher, or omit the option");
        let none = next("a window", &[]);
        assert!(none.starts_with("omit the option; no other mechanism") && !none.contains("--mechanism"), "{none}");
        assert!(next(FEEDBACK, &[]).contains("--service TIME"));
    }
}
