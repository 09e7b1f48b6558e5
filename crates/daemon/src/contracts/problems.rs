//! Refusals of joint contracts, beside those of the hosts ([`qfabric_host::manager::contracts::Refused`]).

use qfabric_types::LinkEnd;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;

use crate::problem::new;

pub(super) fn no_such_contract(id: &JointId) -> Problem {
    let next = "list the contracts in force with `qfabric contract ls`, on the host that asked for them";
    new("no_such_contract", format!("no contract {id} of this host is in force"), next)
}

pub(super) fn no_such_rate(id: &JointId, end: &LinkEnd) -> Problem {
    let message = format!("contract {id} has no rate on {end} of this host");
    new("no_such_contract", message, "compare its resources with `qfabric contract show`")
}

pub(super) fn too_many(uid: u32, limit: usize) -> Problem {
    let message = format!("user {uid} has {limit} contracts, the largest number allowed");
    new("too_many_contracts", message, "end one (`qfabric contract ls`, `qfabric contract rm`)")
}

pub(super) fn host_full(limit: usize) -> Problem {
    let message = format!("this host has initiated {limit} contracts, the largest number allowed");
    new("too_many_contracts", message, "end one (`qfabric contract ls`, `qfabric contract rm`)")
}

pub(super) fn only_here(host: &Name, own: &Name) -> Problem {
    let message = format!("a part is for host {host}, but this host, {own}, makes contracts with no other host");
    let next =
        "set contracts = true in the section [channels] of both hosts' daemons, or ask for resources of this host only";
    new("contracts_off", message, next)
}
