//! The memory that the program writes and this process reads: values and counts.

use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use qfabric_types::kernel_path::{CHANNELS, PARAMETERS};

use crate::abi::{self, qf_path_counts, qf_path_word};
use crate::bpf::{Mapping, Table};
use crate::cpus;

/// A parameter that a peer has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedParameter {
    pub value: i64,
    /// How often the parameter was set.
    pub changes: u64,
    /// The sequence number of the change.
    pub sequence: u64,
    /// When the kernel stored the value, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The sender.
    pub peer: u32,
    /// The epoch of the key that the sender used.
    pub epoch: u32,
}

/// What became of changes; only accepted ones had an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    pub accepted: u64,
    /// Datagrams with a wrong length, and changes with a wrong magic number.
    pub malformed: u64,
    /// No key of this peer and epoch.
    pub unknown: u64,
    /// A wrong tag.
    pub forged: u64,
    /// A channel that the peer may not change, or no such parameter.
    pub denied: u64,
    /// Not newer than the last change of the peer.
    pub replayed: u64,
    /// Above the rate of the peer.
    pub too_many: u64,
}

/// All parameters. Only the program can write them. Clones read the same memory.
#[derive(Clone, Debug)]
pub struct PathWords {
    memory: Arc<Mapping>,
}

impl PathWords {
    pub(super) fn of(table: Table) -> io::Result<PathWords> {
        let bytes = size_of::<qf_path_word>() * usize::from(CHANNELS) * usize::from(PARAMETERS);
        Ok(PathWords { memory: Arc::new(table.freeze(bytes)?) })
    }

    /// The present value of a parameter. `None` if none was set, or if there is no such parameter. Reads again while the
    /// program writes, which takes it some nanoseconds.
    pub fn read(&self, channel: u16, parameter: u16) -> Option<AppliedParameter> {
        if channel >= CHANNELS || parameter >= PARAMETERS {
            return None;
        }
        let number = usize::from(channel) * usize::from(PARAMETERS) + usize::from(parameter);
        let word = &self.memory.words(number * size_of::<qf_path_word>())[..size_of::<qf_path_word>() / 8];
        let version = &word[offset_of!(qf_path_word, version) / 8];
        loop {
            let before = version.load(Ordering::Acquire);
            let found = AppliedParameter::of(word, before / 2);
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && version.load(Ordering::Relaxed) == before {
                return (before > 0).then_some(found);
            }
            std::hint::spin_loop();
        }
    }
}

impl AppliedParameter {
    fn of(word: &[AtomicU64], changes: u64) -> AppliedParameter {
        let load = |at: usize| word[at / 8].load(Ordering::Relaxed);
        let names = load(offset_of!(qf_path_word, peer)).to_ne_bytes();
        let half = |at: usize| u32::from_ne_bytes(names[at..at + 4].try_into().expect("four bytes"));
        AppliedParameter {
            value: load(offset_of!(qf_path_word, value)) as i64,
            changes,
            sequence: load(offset_of!(qf_path_word, sequence)),
            at_ns: load(offset_of!(qf_path_word, time)),
            peer: half(0),
            epoch: half(4),
        }
    }
}

const _: () = assert!(offset_of!(qf_path_word, epoch) == offset_of!(qf_path_word, peer) + 4);

/// A row of counts for each CPU.
#[derive(Debug)]
pub(super) struct Counts {
    memory: Mapping,
    rows: usize,
}

impl Counts {
    pub(super) fn of(table: &Table) -> io::Result<Counts> {
        let rows = cpus::possible() as usize;
        Ok(Counts { memory: table.map(rows * size_of::<qf_path_counts>())?, rows })
    }

    pub(super) fn sum(&self) -> PathCounts {
        let width = size_of::<qf_path_counts>() / 8;
        let rows = || self.memory.words(0).chunks(width).take(self.rows);
        let of = |outcome: u32| rows().map(|row| row[outcome as usize].load(Ordering::Relaxed)).sum();
        PathCounts {
            accepted: of(abi::QF_PATH_ACCEPTED),
            malformed: of(abi::QF_PATH_MALFORMED),
            unknown: of(abi::QF_PATH_UNKNOWN),
            forged: of(abi::QF_PATH_FORGED),
            denied: of(abi::QF_PATH_DENIED),
            replayed: of(abi::QF_PATH_REPLAYED),
            too_many: of(abi::QF_PATH_TOO_MANY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::{OpenObject, objects};
    use crate::testing::skip;

    #[test]
    fn only_the_kernel_can_write_parameters() {
        if !rustix::process::geteuid().is_root() {
            return skip("this test needs root");
        }
        let object = OpenObject::open("the kernel path", objects::PACKET_APPLY).unwrap().load().unwrap();
        let words = PathWords::of(object.table("words").unwrap()).unwrap();
        let table = object.table("words").unwrap();
        assert!(table.map(4_096).is_err() && table.set(&0u32, &[1u64; 8]).is_err());
        assert_eq!(words.read(0, 0), None);
        assert_eq!((words.read(CHANNELS, 0), words.read(0, PARAMETERS)), (None, None));
    }
}
