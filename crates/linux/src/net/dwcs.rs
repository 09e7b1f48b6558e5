//! The queueing discipline in BPF: loads it for one interface, installs it at the root, and configures its streams.

use std::io;

use qfabric_types::api::net::{Selector, StreamSpec};

use super::config::{Config, LINK, Link};
use super::error::NetError;
use super::former::{self, DWCS_KIND, HANDLE};
use super::keys::Key;
use super::selectors::Selectors;
use super::stats::Stats;
use crate::bpf::{Attached, Btf, Object, ObjectError, OpenObject, objects};
use crate::release;

/// Largest number of names to try. A name is taken if an interface of another network namespace has the same index.
const NAMES_TRIED: u32 = 16;

/// A loaded queue.
#[derive(Debug)]
pub(super) struct Dwcs {
    config: Config,
    stats: Stats,
    selectors: Selectors,
    /// Keeps the name registered. The kernel itself keeps the programs as long as the queue is attached.
    _attached: Attached,
    _object: Object,
}

/// Fails if this kernel does not support queueing disciplines in BPF, according to its type information.
pub(super) fn supported() -> Result<(), NetError> {
    let missing = |why: &str| Err(NetError::NoDwcs { why: format!("kernel {} {why}", release::text()) });
    // A structure that exists only with these disciplines.
    match Btf::vmlinux().map(|btf| btf.structure("bpf_sk_buff_ptr")) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            missing("does not support queueing disciplines in BPF (Linux 6.16 or newer with CONFIG_NET_SCH_BPF)")
        }
        Err(_) => {
            missing("has no type information (/sys/kernel/btf/vmlinux), which queueing disciplines in BPF require")
        }
    }
}

impl Dwcs {
    /// Loads the programs and registers the discipline under a unique name, which is returned. Does not attach it yet.
    pub(super) fn load(ifindex: u32, link: &Link) -> Result<(Dwcs, String), NetError> {
        supported()?;
        let mut tried = 0;
        loop {
            let kind = name(ifindex, tried);
            match Dwcs::load_as(&kind, link) {
                Err(NetError::Object(ObjectError::Refused { error, .. }))
                    if is_taken(&error) && tried < NAMES_TRIED =>
                {
                    tried += 1;
                }
                Err(NetError::Object(ObjectError::Refused { error, .. }))
                    if error.kind() == io::ErrorKind::PermissionDenied =>
                {
                    return Err(NetError::NotPermitted { what: "loading a queueing discipline" });
                }
                loaded => return loaded.map(|dwcs| (dwcs, kind)),
            }
        }
    }

    fn load_as(kind: &str, link: &Link) -> Result<Dwcs, NetError> {
        let open = OpenObject::open("the packet scheduler", objects::PACKET_DWCS)?;
        let mut object = open.operations_named("qf_dwcs", kind)?.constant(LINK, &link.constants())?.load()?;
        let (config, stats) = (Config::of(&object)?, Stats::of(&object)?);
        let selectors = Selectors::of(&object)?;
        let attached = object.attach("qf_dwcs")?;
        Ok(Dwcs { config, stats, selectors, _attached: attached, _object: object })
    }

    /// Installs the discipline at the root of an interface.
    pub(super) fn put(&self, ifindex: u32, kind: &str) -> io::Result<()> {
        former::replace(ifindex, HANDLE, kind, None)
    }

    /// Begins a stream: first its attributes are set, then its packets are directed to it.
    pub(super) fn begin(&mut self, slot: u32, spec: &StreamSpec, key: &Key) -> io::Result<()> {
        self.config.begin(slot, spec);
        self.selectors.add(key, slot)
    }

    pub(super) fn change(&self, slot: u32, spec: &StreamSpec) {
        self.config.change(slot, spec);
    }

    /// Ends a stream: new packets are best effort; waiting packets are sent or dropped as before.
    pub(super) fn end(&mut self, key: &Key) -> io::Result<()> {
        self.selectors.remove(key)
    }

    /// Sets the kinds of selectors that are in use.
    pub(super) fn use_kinds<'a>(&self, selectors: impl Iterator<Item = &'a Selector>) {
        self.selectors.use_kinds(selectors);
    }

    pub(super) fn stats(&self) -> &Stats {
        &self.stats
    }
}

/// A name such as `qf_dwcs3`. The kernel keeps at most 15 characters.
fn name(ifindex: u32, tried: u32) -> String {
    match tried {
        0 => format!("{DWCS_KIND}{ifindex}"),
        _ => format!("{DWCS_KIND}{}_{tried}", ifindex % 10_000),
    }
}

/// True if the name is in use in another namespace, or its former owner is still being removed. For some errors libbpf
/// returns no error number.
fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error().is_none_or(|code| code == libc::EEXIST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_into_15_characters() {
        assert_eq!(name(3, 0), "qf_dwcs3");
        assert!((0..NAMES_TRIED).all(|tried| name(99_999_999, tried).len() < 16));
    }

    #[test]
    fn the_refusal_names_the_needed_kernel_and_an_alternative() {
        if let Err(refusal) = supported() {
            let text = refusal.to_string();
            assert!(text.contains("6.16") && text.contains("--htb"), "{text}");
        }
    }
}
