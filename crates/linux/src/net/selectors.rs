//! Writes the maps by which the BPF programs find the stream of a packet (`bpf/packet/classify.h`).

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;

use qfabric_types::api::net::{Flow, Selector};

use super::error::NetError;
use super::keys::{self, Key};
use crate::abi::{
    QF_NET_CGROUP, QF_NET_FLOW, QF_NET_MARK, QF_NET_MARK_FACTOR, QF_NET_MARK_SHIFT, QF_NET_MARKS, QF_NET_STREAMS,
    qf_net_flow, qf_net_mark, qf_net_marks,
};
use crate::bpf::{Mapping, Object, ObjectError, Plain, Table};

// SAFETY: only integers and no holes (checked by the header's size assertions).
#[allow(unsafe_code, reason = "a record of the kernel's side")]
unsafe impl Plain for qf_net_flow {}

/// Assigns packets to streams.
#[derive(Debug)]
pub(super) struct Selectors {
    marks: Marks,
    cgroups: Table,
    flows: Table,
    kinds: Mapping,
}

impl Selectors {
    /// The maps of a loaded object.
    pub(super) fn of(object: &Object) -> Result<Selectors, NetError> {
        let kinds = mapped(object, ".data.kinds", size_of::<u64>())?;
        let marks = Marks { memory: mapped(object, ".data.marks", size_of::<qf_net_marks>())?, known: BTreeMap::new() };
        marks.write();
        let (cgroups, flows) = (object.table("cgroups")?, object.table("flows")?);
        Ok(Selectors { marks, cgroups, flows, kinds })
    }

    /// Assigns these packets to the stream in `slot`.
    pub(super) fn add(&mut self, key: &Key, slot: u32) -> io::Result<()> {
        match key {
            Key::Mark(mark) => {
                self.marks.set(*mark, Some(slot));
                Ok(())
            }
            Key::Cgroup(id) => self.cgroups.set(id, &slot),
            Key::Flow(flow) => self.flows.set(&packed(flow), &slot),
        }
    }

    /// Makes these packets best effort.
    pub(super) fn remove(&mut self, key: &Key) -> io::Result<()> {
        let removed = match key {
            Key::Mark(mark) => {
                self.marks.set(*mark, None);
                Ok(())
            }
            Key::Cgroup(id) => self.cgroups.remove(id),
            Key::Flow(flow) => self.flows.remove(&packed(flow)),
        };
        removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    /// Sets the kinds of selectors in use, so that the programs skip the tests for all others.
    pub(super) fn use_kinds<'a>(&self, selectors: impl Iterator<Item = &'a Selector>) {
        let kinds = selectors.fold(0, |kinds, selector| kinds | u64::from(kind(selector)));
        self.kinds.words(0)[0].store(kinds, Ordering::Relaxed);
    }
}

/// Memory of a section of a loaded object.
pub(super) fn mapped(object: &Object, name: &str, bytes: usize) -> Result<Mapping, NetError> {
    let failed = |error| ObjectError::Kernel { object: "selectors".to_owned(), name: name.to_owned(), error };
    Ok(object.table(name)?.map(bytes).map_err(failed)?)
}

/// The hash table of marks with open addressing (`qf_net_marks`): a change writes the unused copy, then switches to it.
#[derive(Debug)]
struct Marks {
    memory: Mapping,
    known: BTreeMap<u32, u32>,
}

impl Marks {
    fn set(&mut self, mark: u32, slot: Option<u32>) {
        match slot {
            Some(slot) => self.known.insert(mark, slot),
            None => self.known.remove(&mark),
        };
        self.write();
    }

    /// Writes all known marks into the unused copy and switches to it.
    fn write(&self) {
        let words = self.memory.words(0);
        let active = words[0].load(Ordering::Relaxed);
        let first = 1 + if active & 1 == 0 { MARKS } else { 0 };
        for (word, value) in words[first..first + MARKS].iter().zip(table(&self.known)) {
            word.store(value, Ordering::Relaxed);
        }
        words[0].store(active + 1, Ordering::Release);
    }
}

const MARKS: usize = QF_NET_MARKS as usize;

/// Each entry has a mark and its stream in one word, at the mark's hash or at the next free place.
fn table(known: &BTreeMap<u32, u32>) -> [u64; MARKS] {
    let mut table = [word(0, QF_NET_STREAMS); MARKS];
    for (mark, slot) in known {
        let first = (mark.wrapping_mul(QF_NET_MARK_FACTOR) >> QF_NET_MARK_SHIFT) as usize;
        let free = (first..).map(|at| at % MARKS).find(|at| table[*at] == word(0, QF_NET_STREAMS));
        table[free.expect("at most a quarter of the table is full")] = word(*mark, *slot);
    }
    table
}

/// One [`qf_net_mark`] as a word.
fn word(mark: u32, stream: u32) -> u64 {
    let record = qf_net_mark { mark, stream };
    u64::from_ne_bytes([record.mark.to_ne_bytes(), record.stream.to_ne_bytes()].concat().try_into().expect("eight"))
}

fn kind(selector: &Selector) -> u32 {
    match selector {
        Selector::Flow(_) => QF_NET_FLOW,
        Selector::Mark(_) => QF_NET_MARK,
        Selector::Cgroup(_) => QF_NET_CGROUP,
    }
}

fn packed(flow: &Flow) -> qf_net_flow {
    let mut record = qf_net_flow { protocol: flow.protocol.number(), ..qf_net_flow::default() };
    record.version = if flow.source.is_ipv4() { 4 } else { 6 };
    (record.source, record.destination) = (keys::words(flow.source.ip()), keys::words(flow.destination.ip()));
    (record.source_port, record.destination_port) = (flow.source.port().to_be(), flow.destination.port().to_be());
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_with_equal_hashes_are_stored_one_after_the_other() {
        let known: BTreeMap<u32, u32> = (1..=64).map(|n| (n * 256, n)).collect();
        let table = table(&known);
        assert_eq!(table.iter().filter(|place| **place != word(0, QF_NET_STREAMS)).count(), 64);
    }

    #[test]
    fn flows_are_in_network_byte_order() {
        let record = packed(&"udp,10.0.0.1:5000,10.0.0.2:6000".parse().unwrap());
        assert_eq!(record.source[0].to_ne_bytes(), [10, 0, 0, 1]);
        assert_eq!(record.destination_port.to_ne_bytes(), 6000u16.to_be_bytes());
        assert_eq!((record.protocol, record.version), (17, 4));
    }
}
