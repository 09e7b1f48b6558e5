//! Refusals of a host beyond those of its supervisor: stable codes, values, limits and next steps.

use qfabric_control::guarantee::NoGuarantee;
use qfabric_types::api::Problem;
use qfabric_types::{AppId, InvalidContract, Owner, SERVICE, ThreadId};

use crate::host::FEEDBACK;

pub(crate) fn invalid_contract(reason: &InvalidContract) -> Problem {
    Problem::new("invalid_contract", reason.to_string(), "correct the contract and request it again")
}

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
    Problem::new("already_covered", message, "change the contract of application {app}, or end it first")
}

pub(crate) fn not_permitted(owner: Owner) -> Problem {
    let message = format!("user {} may not hold reservations: the user's maximum is 0 CPU", owner.uid);
    Problem::new(
        "not_permitted",
        message,
        "ask the administrator to raise the maximum under [limits.users] or limits.default_user",
    )
}

/// The contract needs an ability that another mechanism has.
pub(crate) fn incapable(mechanism: &str, what: &str) -> Problem {
    let message = format!("the mechanism {mechanism} cannot give {what}");
    let next_step = match what {
        FEEDBACK => {
            "ask for a fixed service (--service TIME with --period TIME, or --fixed CPUS), or use another mechanism"
        }
        SERVICE => {
            "use --mechanism ext (kernel 6.19 or newer; see `qfabric doctor`) or --mechanism dispatcher, or omit the option"
        }
        _ => "use --mechanism ext (kernel 6.19 or newer; see `qfabric doctor`), or omit the option",
    };
    Problem::new("unavailable", message, next_step)
}
