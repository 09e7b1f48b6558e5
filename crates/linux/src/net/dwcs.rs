//! The queueing discipline in BPF: loaded for one interface, put at its root, told of streams.

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

/// Names that a second attachment of the same interface number (in another network namespace) may need.
const NAMES_TRIED: u32 = 16;

/// A queue at work.
#[derive(Debug)]
pub(super) struct Dwcs {
    config: Config,
    stats: Stats,
    selectors: Selectors,
    /// The kernel keeps the programs as long as the queue is attached; these are what the name stands for.
    _attached: Attached,
    _object: Object,
}

/// Whether this kernel takes queueing disciplines in BPF: its own types are asked.
pub(super) fn supported() -> Result<(), NetError> {
    let missing = |why: &str| Err(NetError::NoDwcs { why: format!("kernel {} {why}", release::text()) });
    // A structure that only they have.
    match Btf::vmlinux().map(|btf| btf.structure("bpf_sk_buff_ptr")) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => missing("has no queueing disciplines in BPF (Linux 6.16 and newer, CONFIG_NET_SCH_BPF)"),
        Err(_) => missing("has no type information (/sys/kernel/btf/vmlinux), which queueing disciplines in BPF need"),
    }
}

impl Dwcs {
    /// Loads the programs and registers the discipline under a name of its own, which is answered. Nothing is
    /// attached to the interface yet.
    pub fn load(ifindex: u32, link: &Link) -> Result<(Dwcs, String), NetError> {
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

    /// Puts the discipline at the root of an interface.
    pub fn put(&self, ifindex: u32, kind: &str) -> io::Result<()> {
        former::replace(ifindex, HANDLE, kind, None)
    }

    /// Begins a stream: its attributes first, then packets are told to be its own.
    pub fn begin(&mut self, slot: u32, spec: &StreamSpec, key: &Key) -> io::Result<()> {
        self.config.begin(slot, spec);
        self.selectors.add(key, slot)
    }

    /// Gives a stream other attributes.
    pub fn change(&self, slot: u32, spec: &StreamSpec) {
        self.config.change(slot, spec);
    }

    /// Ends a stream: new packets are best effort; those that wait go as they would have.
    pub fn end(&mut self, key: &Key) -> io::Result<()> {
        self.selectors.remove(key)
    }

    /// Which kinds of selectors there are.
    pub fn use_kinds<'a>(&self, selectors: impl Iterator<Item = &'a Selector>) {
        self.selectors.use_kinds(selectors);
    }

    /// What it counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

/// `qf_dwcs3`, of at most 15 characters, which is what the kernel keeps.
fn name(ifindex: u32, tried: u32) -> String {
    match tried {
        0 => format!("{DWCS_KIND}{ifindex}"),
        _ => format!("{DWCS_KIND}{}_{tried}", ifindex % 10_000),
    }
}

/// Another namespace has it, or what had it is still on its way out. libbpf keeps the number of some errors to itself.
fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error().is_none_or(|code| code == libc::EEXIST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_into_what_the_kernel_keeps() {
        assert_eq!(name(3, 0), "qf_dwcs3");
        assert!((0..NAMES_TRIED).all(|tried| name(99_999_999, tried).len() < 16));
    }

    #[test]
    fn a_kernel_without_the_feature_is_told_what_to_use_instead() {
        if let Err(refusal) = supported() {
            let text = refusal.to_string();
            assert!(text.contains("6.16") && text.contains("--htb"), "{text}");
        }
    }
}
