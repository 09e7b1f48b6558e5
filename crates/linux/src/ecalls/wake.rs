//! What a reader of shared memory sleeps on: a BPF ring buffer of one page of this machine, written to by handlers that find the
//! reader asleep.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use qfabric_types::memory;

use super::ring::whole_pages;
use crate::bpf::{Map, Mapping};

/// A wake ring. Its descriptor is readable after an event that found the reader asleep.
#[derive(Debug)]
pub(super) struct Wake {
    ring: Map,
    bytes: u32,
    /// Its two pages, once this process has slept on it.
    pages: OnceLock<(Mapping, Mapping)>,
}

impl Wake {
    pub fn new() -> io::Result<Wake> {
        let bytes = whole_pages(0, rustix::param::page_size());
        Ok(Wake { ring: Map::ring(bytes)?, bytes, pages: OnceLock::new() })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// Makes the descriptor unreadable again, as a reader in another process does with a mapping of its own
    /// ([`memory::acknowledge`]).
    pub fn acknowledge(&self) -> io::Result<()> {
        if self.pages.get().is_none() {
            // Another thread may have been faster; its mapping is as good.
            let _ = self.pages.set(self.ring.map_ring(self.bytes as usize)?);
        }
        let (reader, writer) = self.pages.get().expect("just set");
        memory::acknowledge(&reader.words(0)[0], &writer.words(0)[0]);
        Ok(())
    }
}
