//! Segments of a memory reserve: sealed memfds whose pages the daemon locks, and their mappings in applications.
//!
//! A page is resident while any process has it locked. The daemon holds a locked mapping of each segment, so an
//! application needs no right to lock memory, and cannot lock more than its reserve.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU8;

use qfabric_types::api::memory::PageKind;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{Advice, ProtFlags, madvise, mlock};

use crate::mapping::Mapping;
use crate::memfd;

/// Locked pages of a file; unlocked when dropped, because unmapped pages are not locked.
#[derive(Debug)]
pub struct LockedPages(#[expect(dead_code, reason = "held for its lock")] Mapping);

impl LockedPages {
    /// Maps `bytes` bytes of a file from `offset` on (a multiple of the page size) for reading, makes them resident and
    /// locks them. The pages are never read, so a file that shrinks later raises no `SIGBUS`.
    ///
    /// # Errors
    /// The process may not lock that many pages, or the file is shorter.
    pub fn of_file(file: impl AsFd, bytes: usize, offset: u64) -> io::Result<LockedPages> {
        let mapping = Mapping::new(file, bytes, offset, ProtFlags::READ)?;
        mapping.lock()?;
        Ok(LockedPages(mapping))
    }
}

/// A segment on the side of the daemon. When it is dropped, its pages are free: an application that keeps its mapping
/// reads zeros, and pages that it touches again are its own. Otherwise it could keep the pages of many freed segments.
#[derive(Debug)]
pub struct LockedSegment {
    _pages: LockedPages,
    file: OwnedFd,
    bytes: u64,
    kind: PageKind,
}

impl LockedSegment {
    /// Creates a segment of zeros whose size never changes, and locks its pages.
    ///
    /// # Errors
    /// The process may not lock that many pages, or the host has no free memory.
    pub fn create(bytes: usize) -> io::Result<LockedSegment> {
        LockedSegment::of(memfd::create("qfabric-segment", bytes)?, bytes, PageKind::Base)
    }

    /// Like [`LockedSegment::create`], in huge pages if the host has enough free ones. Otherwise the kernel is advised
    /// to combine ordinary pages. `bytes` is a multiple of the size of a huge page.
    ///
    /// # Errors
    /// As for [`LockedSegment::create`].
    pub fn create_huge(bytes: usize) -> io::Result<LockedSegment> {
        let huge = memfd::create_huge("qfabric-segment", bytes);
        // Mapping the file takes the pages, and fails if there are too few.
        huge.and_then(|file| LockedSegment::of(file, bytes, PageKind::Huge))
            .or_else(|_| LockedSegment::of(memfd::create("qfabric-segment", bytes)?, bytes, PageKind::Advised))
    }

    fn of(file: OwnedFd, bytes: usize, mut kind: PageKind) -> io::Result<LockedSegment> {
        let mapping = Mapping::new(&file, bytes, 0, ProtFlags::READ | ProtFlags::WRITE)?;
        if kind == PageKind::Advised && !mapping.is_advised_huge() {
            kind = PageKind::Base;
        }
        mapping.lock()?;
        if kind == PageKind::Huge {
            // Huge pages are never swapped out, and the kernel ignores their lock.
            mapping.populate();
        }
        Ok(LockedSegment { _pages: LockedPages(mapping), file, bytes: bytes as u64, kind })
    }

    /// The kind of its pages.
    pub fn kind(&self) -> PageKind {
        self.kind
    }

    /// The file to pass to the application.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }
}

impl Drop for LockedSegment {
    fn drop(&mut self) {
        // Fails for no memfd without a seal against writing.
        let _ = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, self.bytes);
    }
}

/// A segment on the side of an application. Other members of the reserve may write at any time, so the bytes are
/// atomic.
#[derive(Debug)]
pub struct SharedSegment(Mapping);

impl SharedSegment {
    /// Maps a segment that came from the daemon, with all pages present in the page table, so that no later access is
    /// a page fault.
    ///
    /// # Errors
    /// The file has another size, or could shrink.
    pub fn map(file: &OwnedFd, bytes: usize) -> io::Result<SharedSegment> {
        let mapping = Mapping::shared(file, bytes)?;
        mapping.populate();
        Ok(SharedSegment(mapping))
    }

    #[allow(unsafe_code)] // the mapping outlives the reference
    pub fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: mapped until drop, with this length (`Mapping::length`); an `AtomicU8` has the size and alignment of
        // a byte, and every bit pattern is valid.
        unsafe { std::slice::from_raw_parts(self.0.start().cast().as_ptr(), self.0.length()) }
    }
}

impl Mapping {
    #[allow(unsafe_code)] // a call with the address of the mapping
    fn lock(&self) -> io::Result<()> {
        // SAFETY: the range is mapped until `self` is dropped; locking changes no contents.
        unsafe { mlock(self.start().as_ptr().cast(), self.length()) }.map_err(io::Error::from)
    }

    /// Advises the kernel to combine the pages to huge ones. False for a kernel without transparent huge pages.
    #[allow(unsafe_code)] // as above
    fn is_advised_huge(&self) -> bool {
        // SAFETY: the range is mapped until `self` is dropped; the advice changes no contents.
        unsafe { madvise(self.start().as_ptr().cast(), self.length(), Advice::LinuxHugepage) }.is_ok()
    }

    #[allow(unsafe_code)] // as above
    fn populate(&self) {
        // SAFETY: the range is mapped until `self` is dropped; populating changes no contents. Kernels before 5.14 lack
        // this advice; then the first access to each page is a minor fault.
        let _ = unsafe { madvise(self.start().as_ptr().cast(), self.length(), Advice::LinuxPopulateWrite) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn a_locked_segment_is_shared_without_a_copy() {
        let Ok(daemon) = LockedSegment::create(8192) else {
            assert!(rustix::process::getrlimit(rustix::process::Resource::Memlock).current.is_some());
            return;
        };
        let sides = [0; 2].map(|_| SharedSegment::map(daemon.file(), 8192).unwrap());
        sides[0].bytes()[5000].store(7, Relaxed);
        assert_eq!((sides[1].bytes()[5000].load(Relaxed), sides[1].bytes().len()), (7, 8192));
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let flags = |part: &str| part.lines().find(|line| line.starts_with("VmFlags:")).map(str::to_owned);
        let of_segment = smaps.split("qfabric-segment").skip(1).filter_map(flags);
        assert_eq!(of_segment.filter(|flags| flags.contains(" lo")).count(), 1, "only the daemon's mapping is locked");
    }

    #[test]
    fn the_pages_of_a_dropped_segment_are_free_though_an_application_keeps_its_mapping() {
        let Ok(daemon) = LockedSegment::create(4096) else { return };
        let file = daemon.file().try_clone().unwrap();
        let kept = SharedSegment::map(&file, 4096).unwrap();
        kept.bytes()[9].store(7, Relaxed);
        drop(daemon);
        assert_eq!((rustix::fs::fstat(&file).unwrap().st_blocks, kept.bytes()[9].load(Relaxed)), (0, 0));
    }

    /// With free huge pages, and without: the contents are shared in both cases.
    #[test]
    fn a_segment_has_huge_pages_where_the_host_has_free_ones() {
        const BYTES: usize = 2 << 20;
        let Ok(daemon) = LockedSegment::create_huge(BYTES) else { return };
        let sides = [0; 2].map(|_| SharedSegment::map(daemon.file(), BYTES).unwrap());
        sides[0].bytes()[BYTES - 1].store(7, Relaxed);
        assert_eq!(sides[1].bytes()[BYTES - 1].load(Relaxed), 7);
        let block = rustix::fs::fstat(daemon.file()).unwrap().st_blksize;
        assert_eq!(daemon.kind() == PageKind::Huge, block as usize >= BYTES, "{:?}, blocks of {block}", daemon.kind());
        let file = daemon.file().try_clone().unwrap();
        drop((daemon, sides));
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_blocks, 0, "the pages are free");
    }

    #[test]
    fn a_segment_of_another_size_is_refused() {
        let file = memfd::create("other", 4096).unwrap();
        assert!(SharedSegment::map(&file, 8192).is_err());
    }

    #[test]
    fn pages_of_a_program_can_be_locked_and_pages_beyond_its_end_cannot() {
        let program = std::fs::File::open("/proc/self/exe").unwrap();
        if LockedSegment::create(4096).is_ok() {
            LockedPages::of_file(&program, 4096, 0).unwrap();
        }
        assert!(LockedPages::of_file(tempfile::tempfile().unwrap(), 4096, 0).is_err());
    }
}
