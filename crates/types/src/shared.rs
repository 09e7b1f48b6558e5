//! The atomic words and the sizes of the rings and areas. `tests/models` compiles the same sources with the words
//! of a model checker and smaller sizes instead of this file.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Records of a job ring.
pub(crate) const RECORDS: usize = 256;
/// Words of a message ring: 256 KiB, enough for fifteen of the longest events, or for about 1,800 events of 100
/// bytes.
pub(crate) const WORDS: usize = 32_768;
/// Number of reads of a slot under write, before its reader gives up until the next call.
pub(crate) const TRIES: u32 = 64;
