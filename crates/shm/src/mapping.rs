//! Shared mappings of whole pages, and the areas of [`qfabric_types::memory`] in them.
//!
//! The file behind a mapping is a BPF array map, whose size never changes, or a memfd that is sealed against
//! shrinking: neither can raise `SIGBUS`. All words are atomic, so the other side may write at any time.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use qfabric_types::memory::{Down, Geometry, HEADER_BYTES, SocketPage, Up, UpHeader, UpStorage, UpWriter};
use qfabric_types::message_ring::MessageRings;
use qfabric_types::ring::JobRing;
use rustix::fs::{FileType, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::memfd::{self, Unshrinkable, refused};

/// Pages of a file that somebody else has mapped, too. Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` of `file` from `offset` on, which is a multiple of the page size.
    pub fn new(file: impl AsFd, bytes: usize, offset: u64, access: ProtFlags) -> io::Result<Mapping> {
        Ok(Mapping { at: map(file, bytes, offset, access)?, bytes })
    }

    /// As [`Mapping::new`] for an area that came through a socket: refused where its file could shrink.
    pub fn shared(file: &OwnedFd, bytes: usize) -> io::Result<Mapping> {
        check(file, bytes)?;
        Mapping::new(file, bytes, 0, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// The area as a `T`.
    ///
    /// # Safety
    /// Every bit pattern is a `T`, and `T` has atomic words only.
    #[allow(unsafe_code)] // the one place where a mapping becomes a value
    pub unsafe fn view<T>(&self) -> NonNull<T> {
        // A mapping begins at a page, and pages are no smaller than this anywhere.
        assert!(size_of::<T>() <= self.bytes && align_of::<T>() <= 4096, "the area is too small");
        self.at.cast()
    }
}

/// Of an array map (an anonymous inode) no more can be mapped than there is. What kind of file it is never changes.
pub(crate) fn check(file: &OwnedFd, bytes: usize) -> io::Result<()> {
    if FileType::from_raw_mode(fstat(file)?.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    match Unshrinkable::check(file)?.size()? < bytes as u64 {
        true => Err(refused("the shared memory has other sizes than the daemon told")),
        false => Ok(()),
    }
}

#[allow(unsafe_code)] // mapping shared memory is what this crate is for
fn map(file: impl AsFd, bytes: usize, offset: u64, access: ProtFlags) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let at = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, offset)? };
    Ok(NonNull::new(at.cast()).expect("the kernel maps nothing at address zero"))
}

impl Drop for Mapping {
    #[allow(unsafe_code)] // the other half of mapping
    fn drop(&mut self) {
        // SAFETY: mapped with this size in `map`, and no reference outlives `self`. Failure would mean a wrong
        // address or size; there is nothing to be done about it here.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

#[allow(unsafe_code)] // the raw pointer hides that its target is shareable
// SAFETY: the target is looked at as atomic words only; the pointer itself never changes.
unsafe impl Send for Mapping {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// A memory_up: header and body of one mapping, which whoever reads or writes it owns.
#[derive(Debug)]
pub struct UpArea(Mapping);

impl UpArea {
    fn of(file: &OwnedFd, geometry: Geometry) -> io::Result<UpArea> {
        Ok(UpArea(Mapping::shared(file, geometry.total_bytes() as usize)?))
    }
}

impl UpStorage for UpArea {
    #[allow(unsafe_code)] // the mapping outlives the reference
    fn header(&self) -> &UpHeader {
        // SAFETY: mapped until drop, page-aligned, large enough (`view`), and all words are atomic.
        unsafe { self.0.view::<UpHeader>().as_ref() }
    }

    #[allow(unsafe_code)] // the mapping outlives the reference
    fn body(&self) -> &[AtomicU64] {
        let words = (self.0.bytes - HEADER_BYTES as usize) / 8;
        // SAFETY: a geometry's total is more than its header; the words behind it are mapped until drop, aligned since the
        // header is whole lines, and atomic.
        unsafe { std::slice::from_raw_parts(self.0.at.add(HEADER_BYTES as usize).cast().as_ptr(), words) }
    }
}

/// A memory_up as its reader has it.
#[derive(Debug)]
pub struct SharedUp {
    up: Up<UpArea>,
}

impl SharedUp {
    /// Maps the area that came as `file`; refused unless it has the sizes that were agreed on.
    pub fn map(file: &OwnedFd, agreed: Geometry) -> io::Result<SharedUp> {
        let up = Up::new(UpArea::of(file, agreed)?).map_err(|error| refused(&error.to_string()))?;
        match up.geometry() == agreed {
            true => Ok(SharedUp { up }),
            false => Err(refused("the shared memory has other sizes than the daemon told")),
        }
    }

    /// The reader.
    pub fn up(&mut self) -> &mut Up<UpArea> {
        &mut self.up
    }

    /// The reader, for questions only.
    pub fn peek(&self) -> &Up<UpArea> {
        &self.up
    }
}

/// A memory_up as a process has it that writes into it (the daemon, for what does not happen in the kernel).
#[derive(Debug)]
pub struct OwnedUp {
    writer: UpWriter<UpArea>,
    file: OwnedFd,
}

impl OwnedUp {
    /// Makes a fresh area in a sealed memfd. `position`: see [`UpWriter`].
    pub fn create(geometry: Geometry) -> io::Result<OwnedUp> {
        let file = memfd::create("qfabric-up", geometry.total_bytes() as usize)?;
        let area = UpArea::of(&file, geometry)?;
        area.header().initialize(geometry);
        Ok(OwnedUp { writer: UpWriter::new(area, geometry), file })
    }

    /// The writer.
    pub fn writer(&mut self) -> &mut UpWriter<UpArea> {
        &mut self.writer
    }

    /// What the reader is to be given.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }
}

/// One of the areas that are a value of a fixed size.
pub struct Shared<T: Area> {
    at: NonNull<T>,
    mapping: Mapping,
}

impl<T: Area> fmt::Debug for Shared<T> {
    /// Where it is; its words are many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.mapping).finish()
    }
}

/// What a [`Shared`] may hold.
///
/// # Safety
/// Atomic words only, so that every bit pattern is one.
#[allow(unsafe_code)] // what `Shared` relies on
pub unsafe trait Area: Send + Sync {}

#[allow(unsafe_code)] // see the trait
// SAFETY: atomic words only.
unsafe impl Area for Down {}
#[allow(unsafe_code)] // see the trait
// SAFETY: atomic words only.
unsafe impl Area for SocketPage {}
#[allow(unsafe_code)] // see the trait
// SAFETY: atomic words only.
unsafe impl Area for JobRing {}
#[allow(unsafe_code)] // see the trait
// SAFETY: atomic words only.
unsafe impl Area for MessageRings {}

/// memory_down.
pub type SharedDown = Shared<Down>;
/// The page of the I/O module.
pub type SharedSockets = Shared<SocketPage>;

impl<T: Area> Shared<T> {
    /// Makes a fresh area in a sealed memfd; the file is to be handed out.
    pub fn create(name: &str) -> io::Result<(Shared<T>, OwnedFd)> {
        let file = memfd::create(name, size_of::<T>())?;
        Ok((Shared::map(&file)?, file))
    }

    /// Maps the area that came as `file`.
    #[allow(unsafe_code)] // the areas are values of atomic words
    pub fn map(file: &OwnedFd) -> io::Result<Shared<T>> {
        let mapping = Mapping::shared(file, size_of::<T>())?;
        // SAFETY: an `Area` has atomic words only.
        let at = unsafe { mapping.view::<T>() };
        Ok(Shared { at, mapping })
    }
}

impl<T: Area> std::ops::Deref for Shared<T> {
    type Target = T;

    #[allow(unsafe_code)] // the mapping outlives the reference
    fn deref(&self) -> &T {
        // SAFETY: mapped until drop, page-aligned, large enough (`view`), and all words are atomic.
        unsafe { self.at.as_ref() }
    }
}

#[allow(unsafe_code)] // the raw pointer hides that its target is shareable
// SAFETY: the target has atomic words only, and `Area` asks for Send and Sync.
unsafe impl<T: Area> Send for Shared<T> {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl<T: Area> Sync for Shared<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::memory::{Layout, Stamp};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    #[test]
    fn what_is_written_on_one_side_is_read_on_the_other() {
        let geometry = Geometry::new(Layout::Ring, 4, 12).unwrap();
        let mut daemon = OwnedUp::create(geometry).unwrap();
        let mut application = SharedUp::map(daemon.file(), geometry).unwrap();
        let stamp = Stamp { time_ns: 5, deadline_ns: 9 };
        assert!(daemon.writer().write(&[7; 12], stamp, None));
        let mut data = [0; 12];
        assert_eq!((application.up().take(&mut data), data), (Some(stamp), [7; 12]));
    }

    #[test]
    fn readers_and_writers_that_change_places_keep_their_memory() {
        let geometry = Geometry::new(Layout::Ring, 4, 12).unwrap();
        let mut daemons = [OwnedUp::create(geometry).unwrap(), OwnedUp::create(geometry).unwrap()];
        let mut readers = daemons.each_ref().map(|daemon| SharedUp::map(daemon.file(), geometry).unwrap());
        let ([first, second], [ours, theirs]) = (&mut readers, &mut daemons);
        std::mem::swap(first.up(), second.up());
        std::mem::swap(ours.writer(), theirs.writer());
        // Both are of the second area now, whose first holders go.
        let ([mut reader, _], [mut daemon, _]) = (readers, daemons);
        assert!(daemon.writer().write(&[7; 12], Stamp::default(), None));
        let mut data = [0; 12];
        assert!(reader.up().take(&mut data).is_some() && data == [7; 12]);
    }

    #[test]
    fn other_sizes_than_agreed_are_refused() {
        let made = Geometry::new(Layout::Ring, 4, 12).unwrap();
        let daemon = OwnedUp::create(made).unwrap();
        for (layout, slots, bytes) in [(Layout::Ring, 4, 16), (Layout::Bits, 4, 12), (Layout::Ring, 8192, 12)] {
            let agreed = Geometry::new(layout, slots, bytes).unwrap();
            assert!(SharedUp::map(daemon.file(), agreed).unwrap_err().to_string().contains("other sizes"));
        }
        assert!(SharedUp::map(&tempfile::tempfile().unwrap().into(), made).is_err());
    }

    #[test]
    fn attributes_are_seen_by_everybody_who_has_the_area() {
        let (ours, file) = SharedDown::create("down").unwrap();
        let theirs = SharedDown::map(&file).unwrap();
        assert!(theirs.set_attribute(3, -9));
        assert_eq!(ours.attribute(3), -9);
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let file = memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 1 << 16).unwrap();
        assert!(SharedDown::map(&file).unwrap_err().to_string().contains("could shrink"));
    }
}
