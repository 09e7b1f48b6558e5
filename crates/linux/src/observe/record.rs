//! Parses records of perf events (include/uapi/linux/perf_event.h) from bytes. Covers only the kinds that `perf.rs`
//! and `occupancy.rs` request: every record has TID, TIME and CPU behind its body (`sample_id_all`). Times on
//! CLOCK_MONOTONIC.

use perf_event_open_sys::bindings as abi;
use qfabric_types::Instant;

/// Bytes of a record header: type u32, misc u16, size u16.
pub(super) const HEADER: usize = 8;
/// Bytes of TID, TIME and CPU at the end of a record.
const TRAILER: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A thread got a CPU.
    In {
        pid: i32,
        tid: i32,
        at: Instant,
    },
    /// A thread left its CPU.
    Out {
        tid: i32,
        at: Instant,
        slept: bool,
    },
    Born {
        pid: i32,
        tid: i32,
        parent: i32,
        at: Instant,
    },
    Gone {
        tid: i32,
        at: Instant,
    },
    Exec {
        pid: i32,
        tid: i32,
        at: Instant,
    },
    Lost {
        records: u64,
    },
    /// A record of another kind.
    Other,
}

/// A record of an event that covers all threads of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CpuRecord {
    In {
        pid: i32,
        tid: i32,
        at: Instant,
    },
    Out {
        pid: i32,
        tid: i32,
        at: Instant,
    },
    Born {
        tid: i32,
        parent: i32,
    },
    /// A thread has a new name, by `exec` or by its own wish.
    Named {
        tid: i32,
        name: String,
    },
    Gone {
        tid: i32,
    },
    Lost {
        records: u64,
    },
    /// A record of another kind.
    Other,
}

/// The record size in a header; `None` if it is not possible.
pub(super) fn size_in(header: [u8; HEADER]) -> Option<usize> {
    let size = u16::from_ne_bytes([header[6], header[7]]) as usize;
    (size >= HEADER && size.is_multiple_of(8)).then_some(size)
}

pub(super) fn time_of(record: &[u8]) -> Option<Instant> {
    let trailer = record.len().checked_sub(TRAILER).filter(|&at| at >= HEADER)?;
    Some(Instant::new(u64_at(record, trailer + 8)?))
}

/// `None` if the record is too short for its kind.
pub(super) fn parse(record: &[u8]) -> Option<Record> {
    let Head { kind, misc, at, pid, tid } = head(record)?;
    Some(match kind {
        abi::PERF_RECORD_SWITCH if misc & abi::PERF_RECORD_MISC_SWITCH_OUT == 0 => Record::In { pid, tid, at },
        abi::PERF_RECORD_SWITCH => Record::Out { tid, at, slept: misc & abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT == 0 },
        abi::PERF_RECORD_FORK => {
            let (pid, tid, parent) = (i32_at(record, 8)?, i32_at(record, 16)?, i32_at(record, 20)?);
            Record::Born { pid, tid, parent, at }
        }
        abi::PERF_RECORD_EXIT => Record::Gone { tid: i32_at(record, 16)?, at },
        abi::PERF_RECORD_COMM if misc & abi::PERF_RECORD_MISC_COMM_EXEC != 0 => {
            Record::Exec { pid: i32_at(record, 8)?, tid: i32_at(record, 12)?, at }
        }
        abi::PERF_RECORD_LOST => Record::Lost { records: u64_at(record, 16)? },
        _ => Record::Other,
    })
}

/// `None` if the record is too short for its kind.
pub(super) fn parse_of_cpu(record: &[u8]) -> Option<CpuRecord> {
    let Head { kind, misc, at, pid, tid } = head(record)?;
    Some(match kind {
        abi::PERF_RECORD_SWITCH_CPU_WIDE if misc & abi::PERF_RECORD_MISC_SWITCH_OUT == 0 => {
            CpuRecord::In { pid, tid, at }
        }
        abi::PERF_RECORD_SWITCH_CPU_WIDE => CpuRecord::Out { pid, tid, at },
        abi::PERF_RECORD_FORK => CpuRecord::Born { tid: i32_at(record, 16)?, parent: i32_at(record, 20)? },
        abi::PERF_RECORD_EXIT => CpuRecord::Gone { tid: i32_at(record, 16)? },
        abi::PERF_RECORD_COMM => {
            let padded = record.get(16..record.len() - TRAILER)?;
            let name = padded.split(|byte| *byte == 0).next().unwrap_or_default();
            CpuRecord::Named { tid: i32_at(record, 12)?, name: String::from_utf8_lossy(name).into_owned() }
        }
        abi::PERF_RECORD_LOST => CpuRecord::Lost { records: u64_at(record, 16)? },
        _ => CpuRecord::Other,
    })
}

/// The fields that all records have.
struct Head {
    kind: u32,
    misc: u32,
    at: Instant,
    /// The thread that was on the CPU.
    pid: i32,
    tid: i32,
}

fn head(record: &[u8]) -> Option<Head> {
    let (kind, misc) = (u32_at(record, 0)?, u32::from(u16::from_ne_bytes([*record.get(4)?, *record.get(5)?])));
    let at = time_of(record)?;
    let trailer = record.len() - TRAILER;
    Some(Head { kind, misc, at, pid: i32_at(record, trailer)?, tid: i32_at(record, trailer + 4)? })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    u32_at(bytes, at).map(|n| n as i32)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u32, body: &[u32]) -> Vec<u8> {
        let size = (HEADER + body.len() * 4 + TRAILER) as u16;
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend((misc as u16).to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        body.iter().for_each(|w| bytes.extend(w.to_ne_bytes()));
        bytes.extend(10i32.to_ne_bytes()); // pid
        bytes.extend(11i32.to_ne_bytes()); // tid
        bytes.extend(777u64.to_ne_bytes());
        bytes.extend([0; 8]); // CPU
        bytes
    }

    #[test]
    fn a_switch_record_distinguishes_sleep_from_preemption() {
        let at = Instant::new(777);
        let switch = |misc| parse(&record(abi::PERF_RECORD_SWITCH, misc, &[]));
        assert_eq!(switch(0), Some(Record::In { pid: 10, tid: 11, at }));
        let out = abi::PERF_RECORD_MISC_SWITCH_OUT;
        assert_eq!(switch(out), Some(Record::Out { tid: 11, at, slept: true }));
        let preempted = out | abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
        assert_eq!(switch(preempted), Some(Record::Out { tid: 11, at, slept: false }));
    }

    #[test]
    fn births_deaths_execs_and_losses_are_read() {
        let at = Instant::new(777);
        let fork = record(abi::PERF_RECORD_FORK, 0, &[20, 10, 21, 11, 0, 0]);
        assert_eq!(parse(&fork), Some(Record::Born { pid: 20, tid: 21, parent: 11, at }));
        let exit = record(abi::PERF_RECORD_EXIT, 0, &[20, 10, 21, 11, 0, 0]);
        assert_eq!(parse(&exit), Some(Record::Gone { tid: 21, at }));
        let exec = record(abi::PERF_RECORD_COMM, abi::PERF_RECORD_MISC_COMM_EXEC, &[20, 20, 0, 0]);
        assert_eq!(parse(&exec), Some(Record::Exec { pid: 20, tid: 20, at }));
        assert_eq!(parse(&record(abi::PERF_RECORD_COMM, 0, &[20, 20, 0, 0])), Some(Record::Other));
        let lost = record(abi::PERF_RECORD_LOST, 0, &[1, 0, 9, 0]);
        assert_eq!(parse(&lost), Some(Record::Lost { records: 9 }));
    }

    #[test]
    fn records_of_a_cpu_have_the_thread_and_its_name() {
        let at = Instant::new(777);
        let switch = |misc| parse_of_cpu(&record(abi::PERF_RECORD_SWITCH_CPU_WIDE, misc, &[1, 2]));
        assert_eq!(switch(0), Some(CpuRecord::In { pid: 10, tid: 11, at }));
        let out = abi::PERF_RECORD_MISC_SWITCH_OUT | abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
        assert_eq!(switch(out), Some(CpuRecord::Out { pid: 10, tid: 11, at }));
        let fork = record(abi::PERF_RECORD_FORK, 0, &[20, 10, 21, 11, 0, 0]);
        assert_eq!(parse_of_cpu(&fork), Some(CpuRecord::Born { tid: 21, parent: 11 }));
        let exit = record(abi::PERF_RECORD_EXIT, 0, &[20, 10, 21, 11, 0, 0]);
        assert_eq!(parse_of_cpu(&exit), Some(CpuRecord::Gone { tid: 21 }));
        let name = u32::from_ne_bytes(*b"mpv\0");
        let named = Some(CpuRecord::Named { tid: 21, name: "mpv".to_owned() });
        assert_eq!(parse_of_cpu(&record(abi::PERF_RECORD_COMM, 0, &[20, 21, name, 0])), named);
        let bodies: [&[u32]; 3] = [&[20, 21], &[20], &[]];
        for body in bodies {
            let short = parse_of_cpu(&record(abi::PERF_RECORD_COMM, 0, body));
            assert!(!matches!(short, Some(CpuRecord::Named { ref name, .. }) if !name.is_empty()), "{short:?}");
        }
    }

    #[test]
    fn a_truncated_record_is_refused() {
        let whole = record(abi::PERF_RECORD_FORK, 0, &[20, 10, 21, 11, 0, 0]);
        for length in 0..HEADER + TRAILER {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
        assert_eq!(size_in([0; HEADER]), None);
        assert_eq!(size_in([0, 0, 0, 0, 0, 0, 32, 0]), Some(32));
    }
}
