//! Refusals of a host beyond its supervisor's: stable codes, the values and limits, and what to do.

use qfabric_control::guarantee::NoGuarantee;
use qfabric_types::api::Problem;
use qfabric_types::{AppId, InvalidContract, Owner, ThreadId};

pub(crate) fn invalid_contract(reason: &InvalidContract) -> Problem {
    Problem::new("invalid_contract", reason.to_string(), "correct the contract and ask again")
}

/// The guarantee that the class promises does not exist.
pub(crate) fn no_guarantee(reason: &NoGuarantee) -> Problem {
    Problem::new(reason.code(), reason.to_string(), reason.next_step())
}

pub(crate) fn not_found(app: AppId) -> Problem {
    let message = format!("there is no application {app}");
    Problem::new("not_found", message, "list the applications with `qfabric status`")
}

pub(crate) fn too_many_applications(limit: usize) -> Problem {
    let message = format!("{limit} applications hold contracts already, which is the limit");
    Problem::new("too_many_applications", message, "let one of them go first")
}

pub(crate) fn too_many_threads(threads: usize, limit: usize) -> Problem {
    let message = format!("the program has {threads} threads, {limit} can be covered");
    Problem::new("too_many_threads", message, "cover one thread instead, or raise the limit in the configuration")
}

pub(crate) fn no_threads() -> Problem {
    let message = "the program has no thread that a contract could cover".to_owned();
    Problem::new("not_found", message, "name a process that is running")
}

pub(crate) fn already_covered(thread: ThreadId, app: AppId) -> Problem {
    let message = format!("thread {thread} is covered by application {app} already");
    Problem::new("already_covered", message, "change that application's contract, or release it first")
}

pub(crate) fn not_permitted(owner: Owner) -> Problem {
    let message = format!("user {} may hold no reservations: its maximum is 0 CPU", owner.uid);
    Problem::new("not_permitted", message, "have the administrator raise the user's maximum in the configuration")
}

/// The contract asks for what only another mechanism can give.
pub(crate) fn incapable(mechanism: &str, what: &str) -> Problem {
    let message = format!("the mechanism {mechanism} cannot give {what}");
    Problem::new(
        "unavailable",
        message,
        "use --mechanism ext (kernel 6.19 or newer; qfabric doctor says whether this one can), or leave that out",
    )
}
