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
    let message = format!("no contract or loan {id} has a rate on {end} of this host");
    new("no_such_contract", message, "compare with `qfabric contract show`, or with the refusal that named the loan")
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

pub(super) fn no_such_offer(id: &JointId, host: &Name) -> Problem {
    let message = format!("host {host} offers no more for contract {id}, or the time for an answer is over");
    new("no_such_offer", message, "wait for the next offer with `qfabric contract upgrade`")
}

pub(super) fn not_asked(id: &JointId) -> Problem {
    let message = format!("contract {id} was not applied with upgrades that ask, so nobody is asked");
    new("no_such_offer", message, "apply it with `qfabric contract apply --upgrades ask`")
}

pub(super) fn no_such_question(application: &Name, number: u64) -> Problem {
    let message = format!("application {application} has no question {number}, or the time for its answer is over");
    new("no_such_question", message, "wait for the next question, and answer it in its time")
}

pub(super) fn nobody_answers(application: &Name) -> Problem {
    let message = format!("nobody answers for application {application}");
    new("no_such_question", message, "begin with `qfabric contract consent`")
}

pub(super) fn not_your_application(application: &Name, theirs: u32, yours: u32) -> Problem {
    let message = format!("user {theirs} answers for application {application}, you are user {yours}");
    new("not_yours", message, "choose another name, or have the administrator reserve it in [joint.applications]")
}

pub(super) fn too_many_applications(uid: u32, of_user: usize, all: usize) -> Problem {
    let message = format!("user {uid} answers for {of_user} applications, or all users for {all}: the largest numbers");
    new("too_many_contracts", message, "end one with `qfabric contract consent NAME --forget`")
}

pub(super) fn holder_ended(pid: i32) -> Problem {
    let message = format!("process {pid}, with which the contract ends, has ended");
    new("gone", message, "name a process that lives")
}
