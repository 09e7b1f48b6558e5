//! What the rings and the areas of events are made of. `tests/models` compiles the same sources with the words and the
//! smaller sizes of a model checker in its place.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Records of a job ring.
pub(crate) const RECORDS: usize = 256;
/// Words of a message ring: 256 KiB, which is fifteen of the longest events, or some 1,800 of 100 bytes.
pub(crate) const WORDS: usize = 32_768;
/// Looks at a slot that is being written, before its reader gives up until the next call.
pub(crate) const TRIES: u32 = 64;
