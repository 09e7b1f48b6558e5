//! Refusals about memory.

use std::io;

use qfabric_types::Bytes;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::memory::ReserveId;

use crate::problem::new;

pub(super) fn no_such_reserve(reserve: ReserveId) -> Problem {
    let message = format!("this connection holds no reserve {reserve}");
    new("no_such_reserve", message, "make one, or join one of another process of the same user")
}

pub(super) fn not_your_reserve(reserve: ReserveId, theirs: u32, yours: u32) -> Problem {
    let message = format!("reserve {reserve} belongs to user {theirs}, you are user {yours}");
    new("not_yours", message, "join a reserve of the same user, or make your own")
}

pub(super) fn cannot_lock(bytes: Bytes, error: &io::Error) -> Problem {
    let message = format!("the service cannot lock {bytes}: {error}");
    new("cannot_lock", message, "ask the administrator to grant CAP_IPC_LOCK or LimitMEMLOCK=infinity to the service")
}

pub(super) fn cannot_read_text(error: &io::Error) -> Problem {
    let message = format!("the service cannot open the program text of this process: {error}");
    let next = "ask the administrator to grant CAP_CHECKPOINT_RESTORE and CAP_SYS_PTRACE to the service";
    new("cannot_lock", message, next)
}

pub(super) fn too_many_joined(most: usize) -> Problem {
    let message = format!("this connection holds {most} reserves, which is the limit");
    new("too_many_reserves", message, "free a reserve first")
}

pub(super) fn no_memory_of(id: &JointId) -> Problem {
    let message = format!("contract {id} has no memory on this host");
    new("no_such_claim", message, "ask for memory of this host in the contract, or reserve without a contract")
}

pub(crate) fn not_for_a_thread() -> Problem {
    let message = "memory is promised to a whole program, not to one thread".to_owned();
    new("memory_scope", message, "cover the whole program, or use Mem of the client library")
}
