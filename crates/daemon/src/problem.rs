//! Refusals: stable codes, the values and limits in the text, the next step, and the HTTP status of each.

use std::io;

use axum::http::StatusCode;
use qfabric_types::api::{Claim, InvalidLimit, Problem};
use qfabric_types::{AppId, InvalidContract, ThreadId};

/// Every code this service answers with, what it means over HTTP, and what it means to people.
pub(crate) const CODES: [(&str, StatusCode, &str); 60] = [
    ("invalid", StatusCode::BAD_REQUEST, "the body or the path says something that cannot be meant"),
    ("not_yours", StatusCode::FORBIDDEN, "the process or application is another user's"),
    ("not_found", StatusCode::NOT_FOUND, "no such application"),
    ("no_such_claim", StatusCode::NOT_FOUND, "nothing is kept for that claim"),
    ("no_such_path", StatusCode::NOT_FOUND, "no such path in this API"),
    ("no_such_method", StatusCode::METHOD_NOT_ALLOWED, "the path exists, but not with this method"),
    ("gone", StatusCode::GONE, "the process has ended"),
    ("no_such_thread", StatusCode::GONE, "the process has no such thread (any more)"),
    ("timeout", StatusCode::REQUEST_TIMEOUT, "the request did not arrive, or was not answered, in time"),
    ("already_held", StatusCode::CONFLICT, "the ring of the application is in use"),
    ("foreign", StatusCode::CONFLICT, "the thread runs under a real-time policy of its program's own wish"),
    ("already_covered", StatusCode::CONFLICT, "the thread is under another contract already"),
    ("too_large", StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than is read"),
    ("invalid_contract", StatusCode::UNPROCESSABLE_ENTITY, "the contract asks for something that cannot be meant"),
    ("no_profile", StatusCode::UNPROCESSABLE_ENTITY, "class A or B, and nothing says how much to guarantee"),
    ("not_attainable", StatusCode::CONFLICT, "no budget gives what the class guarantees, on the contract's profile"),
    ("affinity", StatusCode::UNPROCESSABLE_ENTITY, "the thread may not run on all CPUs of its root domain"),
    ("over_committed", StatusCode::CONFLICT, "more is asked for than is free; names who holds the rest"),
    ("user_cap", StatusCode::CONFLICT, "more is asked for than the user may hold"),
    ("group_cap", StatusCode::CONFLICT, "more is asked for than the group may hold"),
    ("too_many_applications", StatusCode::TOO_MANY_REQUESTS, "every place is taken"),
    (
        "too_many_connections",
        StatusCode::TOO_MANY_REQUESTS,
        "the user, or all users together, have their share of places",
    ),
    ("too_many_threads", StatusCode::UNPROCESSABLE_ENTITY, "the program has more threads than can be covered"),
    ("not_permitted", StatusCode::FORBIDDEN, "the user may hold no reservations"),
    ("invalid_limit", StatusCode::UNPROCESSABLE_ENTITY, "a limit is outside what can be meant"),
    ("not_administrator", StatusCode::FORBIDDEN, "only root, and the user that the service runs as, may change limits"),
    ("busy", StatusCode::SERVICE_UNAVAILABLE, "the control thread has more requests waiting than it takes"),
    ("stopping", StatusCode::SERVICE_UNAVAILABLE, "the service is stopping"),
    ("mechanism", StatusCode::INTERNAL_SERVER_ERROR, "the kernel refused the reservation"),
    ("internal", StatusCode::INTERNAL_SERVER_ERROR, "the service lacks a descriptor or memory"),
    ("no_such_service", StatusCode::NOT_FOUND, "no such service"),
    ("no_such_subscription", StatusCode::NOT_FOUND, "no such subscription"),
    ("no_such_handler", StatusCode::NOT_FOUND, "no such handler"),
    ("no_such_lease", StatusCode::NOT_FOUND, "no such connection to ecalls.sock"),
    ("unavailable", StatusCode::CONFLICT, "this kernel, or this process, cannot offer the service"),
    ("service_exists", StatusCode::CONFLICT, "the name is taken"),
    ("not_granted", StatusCode::FORBIDDEN, "the service is not for this user"),
    ("ecalls_limit", StatusCode::TOO_MANY_REQUESTS, "a limit of the section [ecalls] is reached"),
    ("chain", StatusCode::UNPROCESSABLE_ENTITY, "the subscription's parts do not fit together"),
    ("code", StatusCode::UNPROCESSABLE_ENTITY, "the E-code does not compile"),
    ("no_answer", StatusCode::CONFLICT, "the service's owner did not answer"),
    ("full", StatusCode::TOO_MANY_REQUESTS, "more threads are under reservation than are kept track of"),
    ("net_not_found", StatusCode::NOT_FOUND, "no such interface or stream under packet scheduling"),
    ("net_not_permitted", StatusCode::FORBIDDEN, "the user, or this process, may not change interfaces"),
    ("net_invalid", StatusCode::UNPROCESSABLE_ENTITY, "a stream or an interface cannot be meant so"),
    ("net_refused", StatusCode::CONFLICT, "the interface or the stream stands against it"),
    ("over_link", StatusCode::CONFLICT, "the link does not carry the streams"),
    ("channels_off", StatusCode::CONFLICT, "the section [channels] is not enabled"),
    ("access_refused", StatusCode::UNPROCESSABLE_ENTITY, "the access list or the certificate cannot be used"),
    ("not_joined", StatusCode::CONFLICT, "the network cannot be joined by the new access list or certificate"),
    ("no_such_channel", StatusCode::NOT_FOUND, "no host holds a channel of this name"),
    ("channel_exists", StatusCode::CONFLICT, "there is a channel of this name"),
    ("channel_not_open", StatusCode::CONFLICT, "this host, or this connection, does not hold the channel"),
    ("no_such_member", StatusCode::NOT_FOUND, "no such source, sink or registration of this user"),
    ("no_such_filter", StatusCode::NOT_FOUND, "no such filter or parameter"),
    ("no_such_policy", StatusCode::NOT_FOUND, "no such policy"),
    ("policy_exists", StatusCode::CONFLICT, "a policy of this name, or one that decides the same, runs already"),
    ("channel_forbidden", StatusCode::FORBIDDEN, "the access list, or who holds the channel, stands against it"),
    ("channel_limit", StatusCode::TOO_MANY_REQUESTS, "a limit of channels is reached"),
    ("channel_invalid", StatusCode::UNPROCESSABLE_ENTITY, "a name, format or value cannot be meant so"),
];

/// The HTTP status of a refusal. One that is not listed comes from a room that refuses on its own account
/// (admission, contracts): it is the caller's to resolve.
pub(crate) fn status(problem: &Problem) -> StatusCode {
    let listed = CODES.iter().find(|(code, ..)| *code == problem.code);
    listed.map_or(StatusCode::CONFLICT, |(_, status, _)| *status)
}

pub(crate) fn new(code: &str, message: String, next_step: impl Into<String>) -> Problem {
    debug_assert!(CODES.iter().any(|(known, ..)| *known == code), "{code} is not in CODES");
    Problem::new(code, message, next_step)
}

pub(crate) fn invalid(message: String) -> Problem {
    new("invalid", message, "compare the request with GET /v1/openapi.json")
}

pub(crate) fn invalid_contract(why: &InvalidContract) -> Problem {
    new("invalid_contract", why.to_string(), "change the value named, and ask again")
}

pub(crate) fn invalid_limit(why: &InvalidLimit) -> Problem {
    new("invalid_limit", why.to_string(), "change the value named, and send it again; the old limits are in force")
}

pub(crate) fn not_administrator(yours: u32) -> Problem {
    let message = format!("limits are changed by root or by the user that the service runs as, you are user {yours}");
    new("not_administrator", message, "ask as root; everybody may read them (qfabric limits)")
}

pub(crate) fn gone(pid: i32) -> Problem {
    new("gone", format!("process {pid} is gone"), "start it again, then ask again")
}

pub(crate) fn unwatchable(pid: i32, error: &io::Error) -> Problem {
    match error.raw_os_error() {
        Some(libc::ESRCH) => gone(pid),
        // Before 6.9 a pidfd can be had of a process only, not of one of its other threads.
        Some(libc::EINVAL | libc::ENOENT) => {
            new("invalid", format!("{pid} is a thread, not a process"), "name the process, and the thread under covers")
        }
        _ => internal(format!("cannot watch process {pid}: {error}")),
    }
}

pub(crate) fn not_yours(pid: i32, theirs: u32, yours: u32) -> Problem {
    let message = format!("process {pid} runs as user {theirs}, you are user {yours}");
    new("not_yours", message, "ask for your own processes, or ask as root")
}

pub(crate) fn not_your_application(app: AppId, theirs: u32, yours: u32) -> Problem {
    let message = format!("application {app} belongs to user {theirs}, you are user {yours}");
    new("not_yours", message, "change your own applications, or ask as root")
}

pub(crate) fn not_your_ring(app: AppId, theirs: i32, yours: i32) -> Problem {
    let message = format!("application {app} is process {theirs}, you are process {yours}");
    new("not_yours", message, "take the ring from the process that the application was admitted for")
}

pub(crate) fn no_such_thread(pid: i32, thread: ThreadId) -> Problem {
    let message = format!("process {pid} has no thread {thread}");
    new("no_such_thread", message, "name a thread listed in /proc/PID/task, or cover the whole program")
}

pub(crate) fn already_covered(thread: ThreadId, app: AppId) -> Problem {
    let message = format!("thread {thread} is covered by application {app} already");
    new("already_covered", message, format!("change application {app} with PATCH, or DELETE it first"))
}

pub(crate) fn not_found(app: AppId) -> Problem {
    new("not_found", format!("there is no application {app}"), "list them with GET /v1/applications")
}

pub(crate) fn no_such_claim(claim: &Claim) -> Problem {
    let message = format!("nothing is kept here for {claim}");
    let next = "ask again at the host that refused it: the time was over, it was claimed, or another host keeps it";
    new("no_such_claim", message, next)
}

pub(crate) fn no_such_path(path: &str) -> Problem {
    let shown: String = path.chars().take(100).collect();
    new("no_such_path", format!("there is nothing at {shown}"), "see GET /v1/openapi.json for what there is")
}

pub(crate) fn no_such_method(method: &str, path: &str) -> Problem {
    let shown: String = path.chars().take(100).collect();
    new("no_such_method", format!("{shown} does not know {method}"), "see GET /v1/openapi.json for what it knows")
}

pub(crate) fn already_held(app: AppId) -> Problem {
    let message = format!("the ring of application {app} is in use");
    new("already_held", message, "close the connection that holds it, or ask for another contract")
}

pub(crate) fn too_large(limit: usize) -> Problem {
    new("too_large", format!("the body has more than {limit} bytes"), "send a shorter profile")
}

pub(crate) fn timeout() -> Problem {
    new("timeout", "the request was not complete, or not answered, in time".to_owned(), "send it again")
}

pub(crate) fn busy(waiting: usize) -> Problem {
    let message = format!("{waiting} requests are waiting, which is as many as are taken");
    new("busy", message, "send it again in a moment")
}

pub(crate) fn stopping() -> Problem {
    new("stopping", "the service is stopping".to_owned(), "start it again, then send it again")
}

pub(crate) fn too_many_connections(who: &str, has: usize, limit: usize) -> Problem {
    let message = format!("{who} {has} connections, {limit} are the limit");
    new("too_many_connections", message, "close one, or raise api.max_connections")
}

pub(crate) fn too_many_of_user(uid: u32, limit: usize) -> Problem {
    let message = format!("user {uid} has {limit} applications, which is as many as one user may have");
    new("too_many_applications", message, "release one, or raise limits.max_applications_per_user")
}

pub(crate) fn internal(message: String) -> Problem {
    new("internal", message, "see the service's log; raise its limits (LimitNOFILE, memory)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_linux::ApplyError;

    #[test]
    fn codes_are_told_apart() {
        let mut codes: Vec<_> = CODES.iter().map(|(code, ..)| code).collect();
        codes.sort();
        codes.dedup();
        assert_eq!(codes.len(), CODES.len());
    }

    #[test]
    fn a_refusal_of_the_kernel_keeps_its_reason_and_its_way_out() {
        let problem = ApplyError::Gone { thread: ThreadId(7) }.problem();
        assert_eq!((problem.code.as_str(), status(&problem)), ("no_such_thread", StatusCode::GONE));
        assert!(problem.message.contains("thread 7") && problem.next_step.contains("forget"), "{problem:?}");
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let app = AppId(3);
        for problem in [
            invalid("x".into()),
            gone(1),
            not_yours(1, 2, 3),
            not_your_ring(app, 1, 2),
            already_held(app),
            busy(64),
            no_such_path(&"/é".repeat(400)),
            too_many_of_user(5, 6),
            not_administrator(7),
        ] {
            assert!(!problem.next_step.is_empty() && problem.message.chars().count() < 200, "{problem:?}");
            assert!(status(&problem).is_client_error() || status(&problem).is_server_error());
        }
    }
}
