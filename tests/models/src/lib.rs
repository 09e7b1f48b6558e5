//! Compiles the rings and event areas (sources of `types`) and the attempt to join again (source of `client`) with
//! loom's atomic words and locks. A test then runs this code under every interleaving of its threads, and every
//! load may return every value that the memory model allows.
//!
//! This is a separate crate, because a feature or a `--cfg` would also change all crates that are built together
//! with it.
#![forbid(unsafe_code)]

/// Replaces the module of this name in `types`. The constants are small, because each doubling also doubles the
/// number of states to explore.
mod shared {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) const RECORDS: usize = 2;
    pub(crate) const WORDS: usize = 4;
    pub(crate) const TRIES: u32 = 2;
}

/// Replaces the module of this name in `client`.
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

/// Explores `model` with at most `preemptions` preemptions in each execution. Few preemptions are enough to
/// reproduce most bugs (Musuvathi & Qadeer 2007).
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}
