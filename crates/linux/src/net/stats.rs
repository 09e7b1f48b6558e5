//! Reads the words of `qf_net_stats`, the counters of the queue, while packets pass.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use qfabric_types::api::net::{BestEffortCounters, StreamCounters};

use super::error::NetError;
use crate::abi::{qf_net_counters, qf_net_stats};
use crate::bpf::{Mapping, Object, ObjectError};

const SECTION: &str = ".data.stats";

/// The counters of one queue, mapped into this process.
#[derive(Debug)]
pub(super) struct Stats {
    memory: Mapping,
}

impl Stats {
    pub(super) fn of(object: &Object) -> Result<Stats, NetError> {
        let failed = |error| ObjectError::Kernel { object: "the queue".to_owned(), name: SECTION.to_owned(), error };
        Ok(Stats { memory: object.table(SECTION)?.map(size_of::<qf_net_stats>()).map_err(failed)? })
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.words(0)[at / 8].load(Ordering::Relaxed)
    }

    pub(super) fn stream(&self, slot: u32) -> StreamCounters {
        let base = offset_of!(qf_net_stats, stream) + slot as usize * size_of::<qf_net_counters>();
        macro_rules! counter {
            ($field:ident) => {
                self.word(base + offset_of!(qf_net_counters, $field))
            };
        }
        StreamCounters {
            packets: counter!(sent) + counter!(late) + counter!(emptied) + counter!(waiting),
            sent: counter!(sent),
            sent_bytes: counter!(sent_bytes),
            sent_late: counter!(sent_late),
            sent_extra: counter!(sent_extra),
            late: counter!(late),
            overflow: counter!(overflow),
            oversize: counter!(oversize),
            served: counter!(served),
            missed: counter!(missed),
            violations: counter!(violations),
            delay_sum_ns: counter!(delay_sum),
            delay_max_ns: counter!(delay_max),
            waiting: counter!(waiting),
        }
    }

    /// Counters of the packets that belong to no stream.
    pub(super) fn best_effort(&self) -> BestEffortCounters {
        macro_rules! counter {
            ($field:ident) => {
                self.word(offset_of!(qf_net_stats, $field))
            };
        }
        BestEffortCounters {
            packets: counter!(best_sent) + counter!(best_emptied) + counter!(best_waiting),
            sent: counter!(best_sent),
            sent_bytes: counter!(best_sent_bytes),
            owed: counter!(best_owed),
            overflow: counter!(best_overflow),
            waiting: counter!(best_waiting),
        }
    }

    /// Number of times that held packets were released.
    pub(super) fn bursts(&self) -> u64 {
        self.word(offset_of!(qf_net_stats, bursts))
    }
}
