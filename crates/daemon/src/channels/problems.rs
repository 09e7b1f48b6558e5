//! Refusals of Q-channels as the API reports them. Refusals of other crates have their texts there (`problem()` of
//! their errors).

use qfabric_channel::{Error, InvalidKey};
use qfabric_link as link;
use qfabric_types::api::{Claim, Problem};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::Format;

use super::rules::Right;
use crate::problem::new;

pub(super) fn off() -> Problem {
    new(
        "channels_off",
        "this host has no channels".to_owned(),
        "set enabled = true in the section [channels] of the daemon's configuration, and start it again",
    )
}

pub(super) fn no_access_list() -> Problem {
    let message = "this host has no access list: it accepts every host that reaches it".to_owned();
    new(
        "channel_invalid",
        message,
        "set tls in the section [channels] of the daemon's configuration, and start it again",
    )
}

pub(super) fn not_your_access(uid: u32) -> Problem {
    let message = format!("only root may reload the access list; you are user {uid}");
    new("channel_forbidden", message, "ask as root")
}

pub(super) fn bad_access(error: &link::Error) -> Problem {
    let message = format!("the new files are not used, the previous ones stay in force: {}", error.problem().message);
    new("access_refused", message, "correct the file, then run `qfabric channel reload` again")
}

pub(super) fn not_joined(error: &link::Error, is_open: bool) -> Problem {
    let (now, next) = if is_open {
        ("it has rejoined with the old ones, but its own checks use the new access list", "correct the file, then")
    } else {
        let alone = "it is alone, and tries again with the old ones: its applications continue, but no other host \
                     receives their events";
        (alone, "remove the cause, then")
    };
    let why = error.problem().message;
    let message = format!("this host could not join the network with the new access list or certificate: {why}; {now}");
    new("not_joined", message, format!("{next} run `qfabric channel reload` again"))
}

pub(super) fn no_such_lease(lease: u64) -> Problem {
    let message = format!("connection {lease} does not exist or belongs to another user");
    new(
        "no_such_lease",
        message,
        "connect to channels.sock first, and use the connection number that the daemon returns",
    )
}

pub(super) fn not_your_member(what: &str, number: u32) -> Problem {
    let message = format!("this user has no {what} {number} here");
    new("no_such_member", message, "see qfabric channel show; it may have left, or its channel was closed")
}

pub(super) fn not_your_channel(channel: &ChannelId) -> Problem {
    let message = format!("{channel} is not open here under a connection of this user");
    new("channel_forbidden", message, "open it first, or ask as root")
}

pub(super) fn not_your_right(uid: u32, right: Right, channel: &ChannelId) -> Problem {
    let message = format!("user {uid} may not {right} on {channel} here");
    new("channel_forbidden", message, "ask the administrator for a rule that allows it ([[channels.rule]])")
}

pub(super) fn not_your_events(channel: &ChannelId, uid: u32) -> Problem {
    let message = format!("the filter would act on events of other users; user {uid} did not create {channel} here");
    new("channel_forbidden", message, "name one of your sinks, or ask the channel's creator or root")
}

pub(super) fn not_your_filter(filter: &Name, by: &str) -> Problem {
    let message = format!("the filter `{filter}` was installed by {by}");
    new("channel_forbidden", message, "choose another name, or ask as root")
}

pub(super) fn too_many_filters(limit: usize) -> Problem {
    let message = format!("too many filters of one user on the channel, {limit} is the limit");
    new("channel_limit", message, "remove a filter, or combine two texts")
}

/// The filter would take `more` instructions for one event; the user's other filters there take `has`.
pub(super) fn filters_too_long(channel: &ChannelId, more: u64, has: u64, limit: u32) -> Problem {
    let message = format!(
        "for one event on {channel} the filter takes up to {more} instructions and your other filters of this direction \
         {has}; {limit} is the limit for a user's filters"
    );
    let next = "do less work in each loop, remove a filter, or raise channels.max_filter_instructions";
    new("channel_limit", message, next)
}

pub(super) fn too_many_members(uid: u32, channel: &ChannelId, has: usize, limit: usize) -> Problem {
    let message = format!("user {uid} has {has} sources and sinks on {channel} here, {limit} is the limit");
    new("channel_limit", message, "end what is not needed, share members between applications, or use several channels")
}

pub(super) fn too_many_channels(uid: u32, has: usize, limit: usize) -> Problem {
    let message = format!("user {uid} has {has} channels and groups open here, {limit} is the limit");
    new("channel_limit", message, "close what is not needed, or use one channel with several types of events")
}

pub(super) fn too_many_openings(has: usize, limit: usize) -> Problem {
    let message = format!("the connection has opened channels {has} times, {limit} is the limit");
    new("channel_limit", message, "close channels that it has opened more than once")
}

pub(super) fn too_many_active(uid: u32, limit: u64) -> Problem {
    let message = format!(
        "user {uid} has opened {limit} channels that were not open here, or joined channels that had no sink here, \
         faster than one each second"
    );
    new("channel_limit", message, "try again in some seconds; keep channels open and their sinks joined between events")
}

pub(super) fn too_many_registrations(uid: u32, has: usize, limit: usize) -> Problem {
    let message = format!("user {uid} has {has} registrations here, {limit} is the limit");
    new("channel_limit", message, "unregister applications that have ended")
}

/// The users of this host have taken all places that are not for administrators.
pub(super) fn full(what: &str, taken: usize, limit: usize) -> Problem {
    let message = format!("this host has {taken} {what}, {limit} is the limit for users");
    new("channel_limit", message, "wait until others end what they do not need, or ask as root")
}

pub(super) fn unowned_filter(uid: u32) -> Problem {
    let message = format!("only root may install a filter without a connection; you are user {uid}");
    new("channel_forbidden", message, "name the connection that the filter belongs to (lease)")
}

pub(super) fn not_offered(claim: &Claim, host: &Name) -> Problem {
    let message = format!("host {host} has no offer {claim} for this user");
    new("no_such_claim", message, "use the claim from this host's refusal; the offer may have expired")
}

pub(super) fn invalid(message: String) -> Problem {
    new("channel_invalid", message, "compare the request with GET /v1/openapi.json")
}

pub(super) fn formats(what: &qfabric_ecode::Diagnostics) -> Problem {
    new("channel_invalid", format!("the formats cannot be parsed:\n{what}"), "declare them as C structures")
}

pub(super) fn unheld(channel: &ChannelId) -> Problem {
    Error::Unknown(channel.clone()).problem()
}

pub(super) fn not_your_host(uid: u32) -> Problem {
    let message = format!("only root may change the host's monitors; you are user {uid}");
    new("channel_forbidden", message, "watch your own applications (--application), or ask as root")
}

pub(super) fn unwatched(name: &str) -> Problem {
    let shown: String = name.chars().take(64).collect();
    new("channel_invalid", format!("{shown:?} is not watched"), "see qfabric monitor ls")
}

pub(super) fn key(error: &InvalidKey) -> Problem {
    new("channel_invalid", error.to_string(), "choose another name")
}

pub(super) fn limit(what: &str, limit: usize, key: &str) -> Problem {
    new("channel_limit", format!("{what}, {limit} is the limit"), format!("end what is not needed, or raise {key}"))
}

pub(super) fn no_ecalls() -> Problem {
    let message = "this host takes no part in ECalls between hosts".to_owned();
    new("channel_forbidden", message, "set ecalls = true in the section [channels] of the daemon's configuration")
}

pub(super) fn no_target(group: Option<&Name>) -> Problem {
    let message = match group {
        Some(group) => format!("no host has a member in the group {group}"),
        None => "the request names no host".to_owned(),
    };
    new("channel_invalid", message, "see qfabric group ls and qfabric group hosts")
}

/// The channel has no type with the layout of these events.
pub(super) fn no_such_layout(channel: &ChannelId, given: &str, types: &[Format]) -> Problem {
    let message = format!("the events are struct {given}, and no type of {channel} has this layout: {}", names(types));
    new("channel_invalid", message, "use a handler whose output is one of its types, or another channel")
}

pub(super) fn name_a_type(channel: &ChannelId, types: &[Format]) -> Problem {
    let message = format!("the service needs one type of {channel} that has a layout; it has {}", names(types));
    new("channel_invalid", message, format!("name one as channel:{channel}/TYPE"))
}

fn names(types: &[Format]) -> String {
    let names: Vec<_> = types.iter().map(|format| format.name.as_str()).collect();
    if names.is_empty() { "no types".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_reason_and_its_way_out() {
        let problem = unheld(&"video".parse().unwrap());
        assert_eq!(problem.code, "no_such_channel");
        assert!(problem.message.contains("video") && problem.next_step.contains("channel ls"), "{problem:?}");
        let problem = Error::Capacity { asked: 0 }.problem();
        assert_eq!((problem.code.as_str(), problem.message.as_str()), ("channel_invalid", "a queue of 0 events"));
    }
}
