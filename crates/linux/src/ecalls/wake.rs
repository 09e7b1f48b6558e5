//! The object on which a reader of shared memory sleeps: a BPF ring buffer of one page. A handler writes to it if the
//! reader sleeps.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use qfabric_types::memory;

use super::holders::KernelObject;
use super::ring::whole_pages;
use crate::bpf::{Map, Mapping};

/// A wake ring. Its descriptor is readable after an event for a sleeping reader.
#[derive(Debug)]
pub(super) struct Wake {
    ring: Map,
    bytes: u32,
    /// Its two pages, mapped when this process first acknowledges.
    pages: OnceLock<(Mapping, Mapping)>,
}

impl Wake {
    pub(super) fn new() -> io::Result<Wake> {
        let bytes = whole_pages(0, rustix::param::page_size());
        Ok(Wake { ring: Map::ring(bytes)?, bytes, pages: OnceLock::new() })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    pub(super) fn object(&self) -> io::Result<KernelObject> {
        self.ring.id().map(KernelObject::Map)
    }

    /// Makes the descriptor unreadable again. A reader in another process does this with its own mapping
    /// ([`memory::acknowledge`]).
    pub(super) fn acknowledge(&self) -> io::Result<()> {
        if self.pages.get().is_none() {
            // If another thread was faster, its mapping is used.
            let _ = self.pages.set(self.ring.map_ring(self.bytes as usize)?);
        }
        let (reader, writer) = self.pages.get().expect("just set");
        memory::acknowledge(&reader.words(0)[0], &writer.words(0)[0]);
        Ok(())
    }
}
