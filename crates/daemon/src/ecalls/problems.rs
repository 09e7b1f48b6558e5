//! The refusals of ECalls.

use qfabric_ecode::Diagnostics;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{Author, SubscriptionId};
use qfabric_types::channel::Name;
use qfabric_types::text::is_plain;

use crate::problem::new;

pub(crate) fn no_such_service(name: &str) -> Problem {
    let shown: String = name.chars().take(64).collect();
    new("no_such_service", format!("there is no service {shown:?}"), "list them with `qfabric services`")
}

pub(crate) fn unavailable(service: &str, what: &str, remedy: &str) -> Problem {
    new("unavailable", format!("service {service} is not available here: {what}"), remedy)
}

pub(crate) fn service_exists(name: &str) -> Problem {
    let message = format!("service {name} exists already");
    new("service_exists", message, "choose another name, for example with your program's name in front")
}

pub(crate) fn bad_name(name: &str) -> Problem {
    let shown: String = name.chars().take(80).collect();
    let message =
        format!("{shown:?} is not a valid name: use 3 to 64 letters, digits, '.', '_' and '-' with a dot inside");
    new("invalid", message, "choose a name such as player.frame")
}

pub(crate) fn not_granted(service: &str, uid: u32) -> Problem {
    let message = format!("service {service} reports events of the whole host, you are user {uid}");
    new("not_granted", message, format!("ask the administrator to add {service} under [ecalls.users], or use root"))
}

pub(crate) fn slows_system_calls(service: &str, uid: u32) -> Problem {
    let message =
        format!("{service} with this option makes the system calls of all processes slower, you are user {uid}");
    let next =
        format!("use when=schedule or when=delay, or ask the administrator to add {service} under [ecalls.users]");
    new("not_granted", message, next)
}

/// No rule lets the author install a handler at the service.
pub(crate) fn not_for_host(author: &Author, service: &str) -> Problem {
    let shown: String = service.chars().filter(|c| is_plain(*c)).take(64).collect();
    let message = format!("user {} of host {} may not install handlers at {shown} there", author.uid, author.host);
    new("not_granted", message, "ask that host's administrator for a table [[ecalls.host]] that allows it")
}

pub(crate) fn no_such_host(host: &Name) -> Problem {
    let message = format!("host {host} is not present, or takes no part in ECalls between hosts");
    new("no_answer", message, "see qfabric group hosts; set ecalls = true in the section [channels] of that host")
}

pub(crate) fn not_your_service(service: &str, theirs: u32, yours: u32) -> Problem {
    let message = format!("service {service} belongs to user {theirs} and is not open to others, you are user {yours}");
    new("not_yours", message, "register it as open, or subscribe as that user or as root")
}

pub(crate) fn not_your_subscription(id: SubscriptionId, theirs: u32, yours: u32) -> Problem {
    let message = format!("subscription {id} belongs to user {theirs}, you are user {yours}");
    new("not_yours", message, "change your own subscriptions, or use root")
}

pub(crate) fn no_such_subscription(id: SubscriptionId) -> Problem {
    new("no_such_subscription", format!("there is no subscription {id}"), "list them with `qfabric ecode ls`")
}

pub(crate) fn no_such_handler(name: &str) -> Problem {
    let shown: String = name.chars().take(64).collect();
    new("no_such_handler", format!("there is no handler {shown:?} that you may use"), "list them with GET /v1/handlers")
}

pub(crate) fn no_such_lease(lease: u64) -> Problem {
    let message = format!("connection {lease} does not exist or belongs to another user");
    new("no_such_lease", message, "connect to ecalls.sock first, and use the number from its welcome message")
}

pub(crate) fn limit(what: &str, limit: impl std::fmt::Display, key: &str) -> Problem {
    new("ecalls_limit", format!("{what}, {limit} is the limit"), format!("end what you do not need, or raise {key}"))
}

/// As [`limit`]. A part of what is counted, `ended`, has ended, but processes still hold its descriptors or memory.
pub(crate) fn limit_with_kept(what: &str, ended: u64, most: impl std::fmt::Display, key: &str) -> Problem {
    match ended {
        0 => limit(what, most, key),
        _ => kept(&format!("{what}, {ended} of them ended but still held by processes"), most, key),
    }
}

/// Processes hold too many descriptors, or too much memory, of what has ended.
pub(crate) fn kept(what: &str, most: impl std::fmt::Display, key: &str) -> Problem {
    let next = format!(
        "close the descriptors and mappings of what has ended, or end the processes that hold them, or raise {key}"
    );
    new("ecalls_limit", format!("{what}, {most} is the limit"), next)
}

/// The handlers would take `more` instructions for one event; the user's other handlers at the service take `has`.
pub(crate) fn too_long(service: &str, more: u64, has: u64, limit: u32, key: &str) -> Problem {
    let beside = if has > 0 { format!(" and your other handlers {has}") } else { String::new() };
    let message = format!(
        "for one event of {service} this handler takes up to {more} instructions{beside}; {limit} is the limit for a \
         user's handlers"
    );
    new("ecalls_limit", message, format!("do less work in each loop, loop fewer times, give less fuel, or raise {key}"))
}

/// The user's handlers took more CPU time than allowed.
pub(crate) fn suspended(why: &str) -> Problem {
    let next = "install it again then, do less work for each event, or raise ecalls.max_cpu_per_user";
    new("ecalls_limit", why.to_owned(), next)
}

/// Parts of the request contradict each other.
pub(crate) fn chain(message: impl Into<String>, next_step: impl Into<String>) -> Problem {
    Problem::new("chain", message, next_step)
}

pub(crate) fn code(what: &str, diagnostics: &Diagnostics) -> Problem {
    let message: String = format!("{what}: {diagnostics}").chars().take(4_000).collect();
    new("code", message, "correct the code and check it with `qfabric ecode check`")
}

pub(crate) fn no_answer(service: &str, why: &str) -> Problem {
    new(
        "no_answer",
        format!("service {service} did not answer: {why}"),
        "check that its process is alive and answers calls",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_next_step_and_a_status() {
        for problem in [
            no_such_service(&"é".repeat(300)),
            service_exists("a.b"),
            bad_name("x"),
            not_granted("net.rx", 5),
            limit("64 subscriptions of user 5", 64, "ecalls.max_subscriptions_per_user"),
            limit_with_kept("user 5 has 64 subscriptions", 3, 64, "ecalls.max_subscriptions_per_user"),
            chain("memory_up of 3 slots", "take a power of two"),
            no_answer("a.b", "no answer within 5 ms"),
        ] {
            assert!(!problem.next_step.is_empty() && problem.message.len() < 400, "{problem:?}");
            assert!(crate::problem::status(&problem).is_client_error(), "{problem:?}");
        }
    }
}
