//! Creates BPF maps, and maps their memory into this process.
#![allow(unsafe_code)] // memory shared with the kernel and with applications

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use libbpf_sys as bpf;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::Table;
use super::sys::{self, MapSpec};

/// A map. The kernel frees it when its last holder drops it.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
}

impl Map {
    /// An array whose entries can be mapped into memory. `value_bytes` must be a multiple of 8.
    pub(crate) fn array(value_bytes: u32, entries: u32) -> io::Result<Map> {
        let (kind, flags) = (bpf::BPF_MAP_TYPE_ARRAY, bpf::BPF_F_MMAPABLE);
        let spec = MapSpec { kind, key_bytes: 4, value_bytes, entries, flags, ..MapSpec::default() };
        Ok(Map { fd: sys::map_create(&spec)? })
    }

    /// A ring buffer of `bytes`, which must be a power of two and at least one page.
    pub(crate) fn ring(bytes: u32) -> io::Result<Map> {
        let spec = MapSpec { kind: bpf::BPF_MAP_TYPE_RINGBUF, entries: bytes, ..MapSpec::default() };
        Ok(Map { fd: sys::map_create(&spec)? })
    }

    /// A table with a 32-bit word for each key of 32 bits.
    pub(crate) fn table_of_words(entries: u32) -> io::Result<Map> {
        let kind = bpf::BPF_MAP_TYPE_HASH;
        let spec = MapSpec { kind, key_bytes: 4, value_bytes: 4, entries, ..MapSpec::default() };
        Ok(Map { fd: sys::map_create(&spec)? })
    }

    /// Programs by number, to which other programs can go. Empty when this process has closed its last descriptor.
    pub(crate) fn programs(entries: u32) -> io::Result<Map> {
        let kind = bpf::BPF_MAP_TYPE_PROG_ARRAY;
        let spec = MapSpec { kind, key_bytes: 4, value_bytes: 4, entries, ..MapSpec::default() };
        Ok(Map { fd: sys::map_create(&spec)? })
    }

    /// A word of 64 bits for each CPU, at key 0.
    pub(crate) fn word_of_each_cpu() -> io::Result<Map> {
        let kind = bpf::BPF_MAP_TYPE_PERCPU_ARRAY;
        let spec = MapSpec { kind, key_bytes: 4, value_bytes: 8, entries: 1, ..MapSpec::default() };
        Ok(Map { fd: sys::map_create(&spec)? })
    }

    /// Sockets by a number of 64 bits. A socket that is closed leaves the map. The map lets go of its program when this
    /// process has closed its last descriptor; a socket keeps the program until it leaves the map.
    pub(crate) fn sockets(entries: u32) -> io::Result<Map> {
        let kind = bpf::BPF_MAP_TYPE_SOCKHASH;
        let spec = MapSpec { kind, key_bytes: 8, value_bytes: 8, entries, ..MapSpec::default() };
        Ok(Map { fd: sys::map_create(&spec)? })
    }

    /// Adds a socket of this process to a map of sockets.
    pub(crate) fn add_socket(&self, key: u64, socket: BorrowedFd) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        self.table()?.set(&key, &i64::from(socket.as_raw_fd()))
    }

    /// The entries by key.
    pub(crate) fn table(&self) -> io::Result<Table> {
        self.fd.try_clone().and_then(Table::new)
    }

    /// A map with a 32-bit word for each of a set of sockets, stored with the socket.
    pub(crate) fn socket_words() -> io::Result<Map> {
        let (btf, int) = int_btf()?;
        let spec = MapSpec {
            kind: bpf::BPF_MAP_TYPE_SK_STORAGE,
            key_bytes: 4,
            value_bytes: 4,
            entries: 0,
            flags: bpf::BPF_F_NO_PREALLOC,
            btf: Some((btf.as_fd(), int, int)),
        };
        Ok(Map { fd: sys::map_create(&spec)? })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The kernel's id of the map.
    pub(crate) fn id(&self) -> io::Result<u32> {
        sys::map_id(self.fd.as_fd())
    }

    /// Maps the first `bytes` of an array for reading and writing.
    pub(crate) fn map(&self, bytes: usize) -> io::Result<Mapping> {
        Mapping::new(&self.fd, bytes, 0, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps a ring buffer of `bytes`: the reader's page for writing; the writer's page and the data, twice in a row,
    /// for reading.
    pub(crate) fn map_ring(&self, bytes: usize) -> io::Result<(Mapping, Mapping)> {
        let page = rustix::param::page_size();
        let reader = Mapping::new(&self.fd, page, 0, ProtFlags::READ | ProtFlags::WRITE)?;
        let writer = Mapping::new(&self.fd, page + 2 * bytes, page as u64, ProtFlags::READ)?;
        Ok((reader, writer))
    }
}

/// Sets the 32-bit word of `socket` in a map that [`Map::socket_words`] created, in this or in another process.
pub(crate) fn set_socket_word(map: BorrowedFd, socket: BorrowedFd, word: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let entries = sys::Entries::of(map.try_clone_to_owned()?)?;
    let set = entries.update(&socket.as_raw_fd().to_ne_bytes(), &word.to_ne_bytes());
    set.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => io::Error::new(error.kind(), "this descriptor is not a map of sockets"),
        _ => error,
    })
}

/// Type information for the type `int`, which describes the words stored with sockets.
fn int_btf() -> io::Result<(OwnedFd, u32)> {
    let strings = b"\0int\0";
    let int: [u32; 4] = [1, 1 << 24, 4, 1 << 24 | 32]; // name, kind INT, bytes, signed and 32 bits
    let header: [u32; 6] = [0x0001_eb9f, 24, 0, 16, 16, strings.len() as u32];
    let mut data: Vec<u8> = header.iter().chain(&int).flat_map(|word| word.to_le_bytes()).collect();
    data.extend_from_slice(strings);
    Ok((sys::btf_load(&data)?, 1))
}

/// Memory that the kernel or other processes also write. Accessed only by atomic words. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread; it is accessed only by atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Structures that can be placed over shared memory; the mapping is checked against their size and alignment.
///
/// # Safety
/// The type contains only atomic integers, for which every bit pattern is a value.
pub(crate) unsafe trait Shared {}

// SAFETY: atomic integers and their padding.
unsafe impl Shared for qfabric_types::memory::UpHeader {}
// SAFETY: as above.
unsafe impl Shared for qfabric_types::memory::Down {}
// SAFETY: as above.
unsafe impl Shared for qfabric_types::memory::SocketPage {}

impl Mapping {
    /// Maps `bytes` of a map's memory from `offset`, a multiple of the page size. The kernel refuses a range beyond the
    /// map.
    pub(crate) fn new(fd: &OwnedFd, bytes: usize, offset: u64, access: ProtFlags) -> io::Result<Mapping> {
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs no memory in use.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, fd, offset)? };
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { at, bytes })
    }

    /// The words from byte `offset` (a multiple of 8) to the end.
    pub fn words(&self, offset: usize) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8) && offset <= self.bytes, "the words must be aligned and within the mapping");
        // SAFETY: within the mapping, which lives as long as `self`, aligned, and atomics may be shared.
        unsafe {
            std::slice::from_raw_parts(self.at.as_ptr().add(offset).cast::<AtomicU64>(), (self.bytes - offset) / 8)
        }
    }

    /// The structure at the beginning of the mapping.
    pub(crate) fn head<T: Shared>(&self) -> &T {
        assert!(size_of::<T>() <= self.bytes && align_of::<T>() <= 4096, "the structure must fit into the mapping");
        // SAFETY: within the mapping, which begins at a page and lives as long as `self`; T has only atomics.
        unsafe { self.at.cast::<T>().as_ref() }
    }

    /// Copies the bytes at `offset`. The caller must be sure that no writer is active there.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        for (part, word) in into.chunks_mut(8).zip(self.words(offset)) {
            let bytes = word.load(std::sync::atomic::Ordering::Relaxed).to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }

    /// Writes bytes at `offset` as whole words; fills the last word with zeros.
    pub fn copy_from(&self, offset: usize, bytes: &[u8]) {
        for (part, word) in bytes.chunks(8).zip(self.words(offset)) {
            let mut whole = [0; 8];
            whole[..part.len()].copy_from_slice(part);
            word.store(u64::from_le_bytes(whole), std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this address and length; no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping can be unmapped");
    }
}
