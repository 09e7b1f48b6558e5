//! The rings and the areas of events (sources of `types`) and the attempt to join again (source of `client`), compiled with
//! loom's atomic words and locks: a test runs them under every interleaving of its threads, and lets every load see every
//! value that the memory model allows.
//!
//! A crate of its own, because a feature or a `--cfg` would give these words to everything that is built beside it.
#![forbid(unsafe_code)]

/// In place of the module of this name in `types`; small, since each more doubles what is to be explored.
mod shared {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) const RECORDS: usize = 2;
    pub(crate) const WORDS: usize = 4;
    pub(crate) const TRIES: u32 = 2;
}

/// In place of the module of this name in `client`.
mod sync {
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

#[path = "../../../crates/client/src/attempt.rs"]
pub mod attempt;
pub mod memory;
#[path = "../../../crates/types/src/message_ring.rs"]
pub mod message_ring;
#[path = "../../../crates/types/src/ring.rs"]
pub mod ring;

pub use qfabric_types::{Foresight, Instant, JobRecord, Nanos, Overload};

/// Explores `model` with at most so many preemptions in each execution: bugs need few of them (Musuvathi & Qadeer 2007).
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}
