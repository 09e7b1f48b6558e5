//! The maps by which programs in the kernel tell whose packet it is (`bpf/packet/classify.h`).

use std::io;
use std::sync::atomic::Ordering;

use qfabric_types::api::net::{Flow, Selector};

use super::error::NetError;
use super::keys::{self, Key};
use crate::abi::{QF_NET_CGROUP, QF_NET_FLOW, QF_NET_MARK, qf_net_flow};
use crate::bpf::{Mapping, Object, ObjectError, Plain, Table};

// SAFETY: integers only, no holes (the header's size assertions).
#[allow(unsafe_code, reason = "a record of the kernel's side")]
unsafe impl Plain for qf_net_flow {}

/// Whose packets belong to which stream.
#[derive(Debug)]
pub(super) struct Selectors {
    marks: Table,
    cgroups: Table,
    flows: Table,
    kinds: Mapping,
}

impl Selectors {
    /// Those of a loaded object.
    pub fn of(object: &Object) -> Result<Selectors, NetError> {
        let name = ".data.kinds";
        let failed = |error| ObjectError::Kernel { object: "selectors".to_owned(), name: name.to_owned(), error };
        let kinds = object.table(name)?.map(size_of::<u64>()).map_err(failed)?;
        let (marks, cgroups, flows) = (object.table("marks")?, object.table("cgroups")?, object.table("flows")?);
        Ok(Selectors { marks, cgroups, flows, kinds })
    }

    /// From now on these packets are the stream's.
    pub fn add(&self, key: &Key, slot: u32) -> io::Result<()> {
        match key {
            Key::Mark(mark) => self.marks.set(mark, &slot),
            Key::Cgroup(id) => self.cgroups.set(id, &slot),
            Key::Flow(flow) => self.flows.set(&packed(flow), &slot),
        }
    }

    /// From now on these packets are best effort.
    pub fn remove(&self, key: &Key) -> io::Result<()> {
        let removed = match key {
            Key::Mark(mark) => self.marks.remove(mark),
            Key::Cgroup(id) => self.cgroups.remove(id),
            Key::Flow(flow) => self.flows.remove(&packed(flow)),
        };
        removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    /// Which kinds of selectors there are: packets are looked at no more than these need.
    pub fn use_kinds<'a>(&self, selectors: impl Iterator<Item = &'a Selector>) {
        let kinds = selectors.fold(0, |kinds, selector| kinds | u64::from(kind(selector)));
        self.kinds.words(0)[0].store(kinds, Ordering::Relaxed);
    }
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
    fn flows_have_the_order_of_the_wire() {
        let record = packed(&"udp,10.0.0.1:5000,10.0.0.2:6000".parse().unwrap());
        assert_eq!(record.source[0].to_ne_bytes(), [10, 0, 0, 1]);
        assert_eq!(record.destination_port.to_ne_bytes(), 6000u16.to_be_bytes());
        assert_eq!((record.protocol, record.version), (17, 4));
    }
}
