//! Refusals of policies.

use std::fmt::Display;

use qfabric_types::api::Problem;
use qfabric_types::api::channel::Resource;
use qfabric_types::channel::Name;

use crate::problem::new;

pub(super) fn exists(name: &Name) -> Problem {
    new("policy_exists", format!("there is a policy `{name}` here"), "stop it first, or give this one another name")
}

pub(super) fn rival(other: &Name, what: &Resource) -> Problem {
    let message = format!("the policy `{other}` already decides {what}");
    new("policy_exists", message, "stop it first: each policy would undo the decisions of the other")
}

pub(super) fn too_many(limit: usize) -> Problem {
    new("channel_limit", format!("too many policies, {limit} is the limit"), "stop what is not needed")
}

pub(super) fn unknown(name: &Name) -> Problem {
    new("no_such_policy", format!("no policy `{name}` runs here"), "see qfabric policy ls")
}

pub(super) fn unexplained(name: &Name) -> Problem {
    let message = format!("no policy has the name `{name}`, or decides about a channel or group of that name");
    new("no_such_policy", message, "see qfabric policy ls")
}

pub(super) fn not_yours(name: &Name, uid: Option<u32>) -> Problem {
    let by = uid.map_or("this host's configuration".to_owned(), |uid| format!("user {uid}"));
    new("channel_forbidden", format!("the policy `{name}` was started by {by}"), "ask as root")
}

pub(super) fn nameless(kind: &str) -> Problem {
    let message = format!("{kind} and the channel's name together are longer than a name may be (64)");
    new("channel_invalid", message, "give the policy a shorter name")
}

pub(super) fn half_a_stream() -> Problem {
    let message = "a stream of packets needs its interface and its number".to_owned();
    new("channel_invalid", message, "name both (`qfabric net stream ls`), or neither")
}

pub(super) fn group_name(group: &Name) -> Problem {
    new("channel_invalid", format!("`{group}` is too long for a group's name"), "leave room for `group.` before it")
}

pub(super) fn not_your_group(group: &Name) -> Problem {
    let message = format!("no connection of this user has an application in the group `{group}` here");
    new("channel_forbidden", message, "register one first, or ask as root")
}

pub(super) fn no_streams() -> Problem {
    let message = "the tree has no stream, or has the same stream twice".to_owned();
    new("channel_invalid", message, "name each channel that this host feeds exactly once")
}

pub(super) fn loose_link(channel: &Name) -> Problem {
    let message = format!("`{channel}` is linked, but is not a stream of this tree");
    new("channel_invalid", message, "name it among the streams, too")
}

pub(super) fn alone(application: &Name) -> Problem {
    let message = format!("`{application}` cannot keep in step with itself");
    new("channel_invalid", message, "name two applications of the group: leader and follower")
}

pub(super) fn file(what: String) -> Problem {
    new("channel_invalid", what, "send the text itself: qfabric policy start code --file reads it for you")
}

pub(super) fn out_of_range(what: &str, value: impl Display, range: &str) -> Problem {
    // Fields of the API end in their unit; users type `--margin 2s`, and the value is shown with its own unit.
    let what = what.strip_suffix("_ns").unwrap_or(what);
    new("channel_invalid", format!("{what} is {value}, allowed: {range}"), "choose an allowed value")
}
