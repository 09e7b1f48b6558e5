//! Refusals: a stable code, a message with the value and the limit, the next step, and an HTTP status for each code.

use std::io;

use axum::http::StatusCode;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::{ApplicationScope, Claim, Problem};
use qfabric_types::{AppId, BitRate, Nanos, ThreadId};

use crate::api::ANSWER_BYTES_PER_SECOND;

/// Every code that this service answers with, its HTTP status, and its meaning.
pub(crate) const CODES: [(&str, StatusCode, &str); 81] = [
    ("invalid", StatusCode::BAD_REQUEST, "the body or the path has an invalid value"),
    ("not_yours", StatusCode::FORBIDDEN, "the process, application or stream belongs to another user"),
    ("not_found", StatusCode::NOT_FOUND, "no such application"),
    ("no_such_claim", StatusCode::NOT_FOUND, "this host has no loan for the claim"),
    ("no_token", StatusCode::UNAUTHORIZED, "a request on TCP without a valid token"),
    ("foreign_page", StatusCode::FORBIDDEN, "a web page of another site sent the request"),
    (
        "too_many_requests",
        StatusCode::TOO_MANY_REQUESTS,
        "a user or the pages of a user ask for too much, or users open too many pages",
    ),
    ("web_off", StatusCode::CONFLICT, "the configuration forbids the web page"),
    ("web_closed", StatusCode::CONFLICT, "the web page cannot be served at its address"),
    ("no_such_path", StatusCode::NOT_FOUND, "no such path in this API"),
    ("other_version", StatusCode::CONFLICT, "the client library has another minor version than this service"),
    ("no_such_method", StatusCode::METHOD_NOT_ALLOWED, "the path exists, but not with this method"),
    (
        "other_pid_namespace",
        StatusCode::CONFLICT,
        "the caller runs in a pid namespace of its own, so its process numbers mean other processes here",
    ),
    ("gone", StatusCode::GONE, "the process has ended"),
    ("no_such_thread", StatusCode::GONE, "the process has no such thread, or it has ended"),
    ("timeout", StatusCode::REQUEST_TIMEOUT, "the request did not arrive, or was not answered, in time"),
    ("already_held", StatusCode::CONFLICT, "another connection holds the application's ring"),
    ("foreign", StatusCode::CONFLICT, "the thread runs under a real-time policy that its program chose"),
    ("already_covered", StatusCode::CONFLICT, "another contract covers the thread"),
    ("too_large", StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than the limit"),
    ("invalid_contract", StatusCode::UNPROCESSABLE_ENTITY, "a value of the contract is not valid"),
    (
        "no_profile",
        StatusCode::UNPROCESSABLE_ENTITY,
        "the contract has class A or B, but no profile and no guaranteed bandwidth",
    ),
    ("not_attainable", StatusCode::CONFLICT, "no budget meets the guarantee of the class for the contract's profile"),
    ("affinity", StatusCode::UNPROCESSABLE_ENTITY, "the thread may not run on all CPUs of its root domain"),
    ("no_slots", StatusCode::CONFLICT, "the dispatch table of the CPU has no slots for the reservation"),
    (
        "over_committed",
        StatusCode::CONFLICT,
        "the requested bandwidth exceeds the free bandwidth; the refusal names the holders of the rest",
    ),
    ("user_cap", StatusCode::CONFLICT, "the requested bandwidth exceeds the user's maximum"),
    ("group_cap", StatusCode::CONFLICT, "the requested bandwidth exceeds the group's maximum"),
    ("too_many_applications", StatusCode::TOO_MANY_REQUESTS, "the limit of applications is reached"),
    (
        "too_many_connections",
        StatusCode::TOO_MANY_REQUESTS,
        "the user, or all users together, have the allowed number of connections",
    ),
    (
        "too_many_threads",
        StatusCode::UNPROCESSABLE_ENTITY,
        "the program has more threads than one application may cover",
    ),
    ("not_permitted", StatusCode::FORBIDDEN, "the user may not hold reservations"),
    ("invalid_limit", StatusCode::UNPROCESSABLE_ENTITY, "a limit is out of range"),
    ("below_promises", StatusCode::CONFLICT, "more memory is promised than the new global reserve"),
    ("not_administrator", StatusCode::FORBIDDEN, "only root, and the user that the service runs as, may change limits"),
    ("busy", StatusCode::SERVICE_UNAVAILABLE, "the queue of the control thread is full"),
    ("stopping", StatusCode::SERVICE_UNAVAILABLE, "the service is stopping"),
    ("mechanism", StatusCode::INTERNAL_SERVER_ERROR, "the kernel refused the reservation"),
    ("internal", StatusCode::INTERNAL_SERVER_ERROR, "the service lacks a descriptor or memory"),
    ("no_such_service", StatusCode::NOT_FOUND, "no such service"),
    ("no_such_subscription", StatusCode::NOT_FOUND, "no such subscription"),
    ("no_such_handler", StatusCode::NOT_FOUND, "no such handler"),
    ("no_such_lease", StatusCode::NOT_FOUND, "no such connection to ecalls.sock"),
    ("unavailable", StatusCode::CONFLICT, "this kernel, or this process, cannot offer the service"),
    ("service_exists", StatusCode::CONFLICT, "a service of this name exists"),
    ("not_granted", StatusCode::FORBIDDEN, "the service is not granted to this user"),
    ("ecalls_limit", StatusCode::TOO_MANY_REQUESTS, "a limit of the section [ecalls] is reached"),
    ("chain", StatusCode::UNPROCESSABLE_ENTITY, "parts of the subscription contradict each other"),
    ("code", StatusCode::UNPROCESSABLE_ENTITY, "the E-code does not compile"),
    ("no_answer", StatusCode::CONFLICT, "the service's owner did not answer"),
    (
        "too_many_reserves",
        StatusCode::TOO_MANY_REQUESTS,
        "the user, or the connection, has the allowed number of reserves",
    ),
    ("no_such_reserve", StatusCode::NOT_FOUND, "this connection holds no such memory reserve"),
    ("over_reserve", StatusCode::CONFLICT, "the memory reserve is too small"),
    ("too_many_allocations", StatusCode::TOO_MANY_REQUESTS, "the memory reserve has the allowed number of allocations"),
    ("no_such_allocation", StatusCode::NOT_FOUND, "no such allocation of this connection"),
    ("cannot_lock", StatusCode::CONFLICT, "the service may not lock that much memory"),
    ("memory_scope", StatusCode::UNPROCESSABLE_ENTITY, "memory is promised to whole programs only"),
    ("full", StatusCode::TOO_MANY_REQUESTS, "the mechanism has no room for more threads under reservation"),
    ("net_not_found", StatusCode::NOT_FOUND, "no such interface or stream under packet scheduling"),
    ("net_not_permitted", StatusCode::FORBIDDEN, "the user, or this process, may not change interfaces"),
    ("net_invalid", StatusCode::UNPROCESSABLE_ENTITY, "a value of a stream or an interface is not valid"),
    ("net_refused", StatusCode::CONFLICT, "the interface or another stream prevents the change"),
    ("over_link", StatusCode::CONFLICT, "the link does not carry the streams"),
    ("channels_off", StatusCode::CONFLICT, "the section [channels] is not enabled"),
    ("access_refused", StatusCode::UNPROCESSABLE_ENTITY, "the access list or the certificate cannot be used"),
    ("not_joined", StatusCode::CONFLICT, "the network cannot be joined with the new access list or certificate"),
    ("no_such_channel", StatusCode::NOT_FOUND, "no host holds a channel of this name"),
    ("channel_exists", StatusCode::CONFLICT, "a channel of this name exists"),
    ("channel_not_open", StatusCode::CONFLICT, "this host, or this connection, does not hold the channel"),
    ("no_such_member", StatusCode::NOT_FOUND, "no such source, sink or registration of this user"),
    ("no_such_filter", StatusCode::NOT_FOUND, "no such filter or parameter"),
    ("no_such_policy", StatusCode::NOT_FOUND, "no such policy"),
    ("policy_exists", StatusCode::CONFLICT, "a policy of this name, or one with the same task, runs already"),
    ("channel_forbidden", StatusCode::FORBIDDEN, "the access list or the holder of the channel does not allow it"),
    ("channel_limit", StatusCode::TOO_MANY_REQUESTS, "a limit of channels is reached"),
    ("channel_invalid", StatusCode::UNPROCESSABLE_ENTITY, "a name, format or value is not valid"),
    ("no_such_contract", StatusCode::NOT_FOUND, "no such joint contract of this host is in force"),
    ("too_many_contracts", StatusCode::TOO_MANY_REQUESTS, "the limit of joint contracts is reached"),
    ("no_such_offer", StatusCode::NOT_FOUND, "the host offers no upgrade of the contract, or its time is over"),
    ("no_such_question", StatusCode::NOT_FOUND, "no such question, or application, of this user"),
    ("contracts_off", StatusCode::CONFLICT, "this host makes no joint contracts with other hosts"),
];

/// The HTTP status of a refusal. A code that is not listed comes from another crate (admission, contracts); the
/// caller can resolve it, so the status is 409.
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

/// `given`: the first characters of the rate in the query.
pub(crate) fn invalid_loan_rate(given: &str) -> Problem {
    let message = format!("loan_rate is {given:?}; it may be 1 to {} bit/s", BitRate::MAX.get());
    new("invalid", message, "write a whole number of bit/s, or leave loan_rate out for a loan without a rate")
}

pub(crate) fn not_administrator(yours: u32) -> Problem {
    let message = format!("only root and the user that the service runs as may change limits, you are user {yours}");
    new("not_administrator", message, "change them as root; every user may read them (qfabric limits)")
}

pub(crate) fn no_token() -> Problem {
    let message = "the request lacks the token of this daemon, or names the machine in another way".to_owned();
    new("no_token", message, "send Authorization: Bearer TOKEN, or without a token use the address of metrics.listen")
}

pub(crate) fn other_pid_namespace(pid: i32) -> Problem {
    let message = format!(
        "the caller (process {pid} of this host) runs in a pid namespace of its own, such as a container: the process \
         numbers that it knows mean other processes on the host"
    );
    new("other_pid_namespace", message, "start the container with --pid host, or attach to its processes from the host")
}

pub(crate) fn not_in_namespace(pid: i32, peer: i32) -> Problem {
    let message = format!(
        "no process {pid} runs in the pid namespace of the caller (process {peer} of this host), or it is in a namespace \
         below it"
    );
    new("other_pid_namespace", message, "name a process by its number in the container, such as ps -e there shows")
}

pub(crate) fn gone(pid: i32) -> Problem {
    new("gone", format!("process {pid} has ended"), "start the process again, then send the request again")
}

pub(crate) fn no_page_token() -> Problem {
    let message = "the request has no token of this daemon, or one of an earlier start".to_owned();
    new("no_token", message, "run qfabric web on this host for a new address")
}

pub(crate) fn foreign_page(why: &str) -> Problem {
    new("foreign_page", why.to_owned(), "open the address that qfabric web prints")
}

pub(crate) fn too_many_page_requests(uid: u32, limit: u64) -> Problem {
    let message = format!("the pages of user {uid} send more than {limit} requests in a second");
    new("too_many_requests", message, "close some of the pages")
}

pub(crate) fn too_many_page_connections(uid: u32) -> Problem {
    let message = format!("user {uid}, or all users together, have too many connections to the web page");
    new("too_many_requests", message, "close some of the pages")
}

pub(crate) fn too_many_page_users(limit: usize) -> Problem {
    let message = format!("{limit} users have the web page open, which is the limit");
    new("too_many_requests", message, "try again in a minute")
}

/// `wait`: the time until the share of the user covers another answer.
pub(crate) fn too_many_answers(uid: u32, wait: Nanos) -> Problem {
    let message = format!("user {uid} asks for more than {} MiB of answers in a second", ANSWER_BYTES_PER_SECOND >> 20);
    let next = format!("ask again in {wait}, and less often; GET /v1/applications/ID shows a single application");
    new("too_many_requests", message, next)
}

/// `wait`: the time until the share of the user covers another change.
pub(crate) fn too_many_changes(uid: u32, wait: Nanos) -> Problem {
    let message = format!("user {uid} sends changes faster than the share of a user allows");
    new("too_many_requests", message, format!("send the change again in {wait}"))
}

pub(crate) fn web_off() -> Problem {
    let message = "web.enabled is false in the configuration of this daemon".to_owned();
    new("web_off", message, "use qfabric status or qfabric top, or ask an administrator to set web.enabled = true")
}

pub(crate) fn web_closed(why: String) -> Problem {
    new("web_closed", why, "qfabric status and qfabric top show the same values")
}

pub(crate) fn unwatchable(pid: i32, error: &io::Error) -> Problem {
    match error.raw_os_error() {
        Some(libc::ESRCH) => gone(pid),
        // Before Linux 6.9, a pidfd exists only for a process, not for one of its other threads.
        Some(libc::EINVAL | libc::ENOENT) => new(
            "invalid",
            format!("{pid} is a thread, not a process"),
            "give the process as pid, and the thread under covers",
        ),
        _ => internal(format!("cannot watch process {pid}: {error}")),
    }
}

pub(crate) fn not_yours(pid: i32, theirs: u32, yours: u32) -> Problem {
    let message = format!("process {pid} runs as user {theirs}, you are user {yours}");
    new("not_yours", message, "use your own processes, or use root")
}

pub(crate) fn not_your_application(app: AppId, theirs: u32, yours: u32) -> Problem {
    let message = format!("application {app} belongs to user {theirs}, you are user {yours}");
    new("not_yours", message, "change your own applications, or use root")
}

pub(crate) fn not_your_ring(app: AppId, theirs: i32, yours: i32) -> Problem {
    let message = format!("application {app} belongs to process {theirs}, you are process {yours}");
    new("not_yours", message, "request the ring from the process of the application")
}

pub(crate) fn no_such_thread(pid: i32, thread: ThreadId) -> Problem {
    let message = format!("process {pid} has no thread {thread}");
    new("no_such_thread", message, "give a thread listed in /proc/PID/task, or cover the whole program")
}

/// Application `app` of process `pid` has the contract that was asked for again. `table`: the name of the table
/// `[[contract]]` that it comes from.
pub(crate) fn already_covered(app: AppId, pid: i32, covers: ApplicationScope, table: Option<&str>) -> Problem {
    let covered = match covers {
        ApplicationScope::Program => format!("process {pid}"),
        ApplicationScope::Thread(thread) => format!("thread {thread} of process {pid}"),
    };
    let (by, change) = match table {
        Some(name) => (
            format!(", by the table [[contract]] {name:?} of the configuration"),
            "change the table and send SIGHUP to the service".to_owned(),
        ),
        None => (String::new(), format!("change the contract (PATCH /v1/applications/{app})")),
    };
    let message = format!("application {app} covers {covered} already{by}");
    new("already_covered", message, format!("{change}, or end the contract first: `qfabric attach {pid} --end`"))
}

pub(crate) fn not_found(app: AppId) -> Problem {
    new("not_found", format!("there is no application {app}"), "list them with GET /v1/applications")
}

pub(crate) fn no_such_claim(claim: &Claim) -> Problem {
    let message = format!("this host has no loan for the claim {claim}, and no part of a contract");
    let next =
        "send the request again to the host that refused it; the loan ran out, was claimed, or is on another host";
    new("no_such_claim", message, next)
}

pub(crate) fn not_your_contract(id: &JointId, theirs: u32, yours: u32) -> Problem {
    let message = format!("contract {id} belongs to user {theirs}, you are user {yours}");
    new("not_yours", message, "use your own contracts, or use root")
}

pub(crate) fn no_such_path(path: &str) -> Problem {
    let shown: String = path.chars().take(100).collect();
    new("no_such_path", format!("there is no path {shown}"), "see the paths in GET /v1/openapi.json")
}

/// The client library of the caller has the version `theirs`.
pub(crate) fn other_version(theirs: &str) -> Problem {
    let shown: String = theirs.chars().take(40).collect();
    let message = format!("the daemon is version {}, the library of this program {shown}", env!("CARGO_PKG_VERSION"));
    new("other_version", message, "install the same minor version of both, and start the program again")
}

pub(crate) fn no_such_method(method: &str, path: &str) -> Problem {
    let shown: String = path.chars().take(100).collect();
    new("no_such_method", format!("{shown} does not support {method}"), "see the methods in GET /v1/openapi.json")
}

pub(crate) fn already_held(app: AppId) -> Problem {
    let message = format!("another connection holds the ring of application {app}");
    new("already_held", message, "close the other connection, or request another contract")
}

pub(crate) fn too_many_decisions(limit: usize) -> Problem {
    let message = format!("{limit} decisions of policies stand about this contract, the limit");
    new("channel_limit", message, "stop a policy: qfabric policy ls")
}

pub(crate) fn too_large(limit: usize) -> Problem {
    new("too_large", format!("the body has more than {limit} bytes"), "send a shorter profile")
}

pub(crate) fn timeout() -> Problem {
    new(
        "timeout",
        "the request was not complete, or not answered, within api.timeout".to_owned(),
        "send the request again",
    )
}

pub(crate) fn busy(waiting: usize) -> Problem {
    let message = format!("{waiting} requests are waiting, which is the limit");
    new("busy", message, "send the request again later")
}

pub(crate) fn stopping() -> Problem {
    new("stopping", "the service is stopping".to_owned(), "start the service again, then send the request again")
}

pub(crate) fn too_many_connections(who: &str, has: usize, limit: usize) -> Problem {
    let message = format!("{who} {has} connections, the limit is {limit}");
    new("too_many_connections", message, "close a connection, or raise api.max_connections")
}

pub(crate) fn too_many_of_user(uid: u32, limit: usize) -> Problem {
    let message = format!("user {uid} has {limit} applications, which is the limit for one user");
    new("too_many_applications", message, "release an application, or raise limits.max_applications_per_user")
}

pub(crate) fn too_many_of_users(all: usize, limit: usize) -> Problem {
    let message = format!("{all} applications have contracts; all users together may have {limit}, root some more");
    new("too_many_applications", message, "end one of them, or raise limits.max_applications")
}

pub(crate) fn internal(message: String) -> Problem {
    new("internal", message, "read the service's log; raise the limits of the service (LimitNOFILE, memory)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_linux::ApplyError;

    #[test]
    fn every_code_is_listed_once() {
        let mut codes: Vec<_> = CODES.iter().map(|(code, ..)| code).collect();
        codes.sort();
        codes.dedup();
        assert_eq!(codes.len(), CODES.len());
    }

    #[test]
    fn a_refusal_of_the_kernel_keeps_its_reason_and_next_step() {
        let problem = ApplyError::Gone { thread: ThreadId(7) }.problem();
        assert_eq!((problem.code.as_str(), status(&problem)), ("no_such_thread", StatusCode::GONE));
        assert!(problem.message.contains("thread 7") && problem.next_step.contains("stop using"), "{problem:?}");
    }

    #[test]
    fn every_refusal_has_a_next_step() {
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
