//! Shared mappings of whole pages, and the areas of [`qfabric_types::memory`] in them.
//!
//! The file behind a mapping is either a BPF array map, whose size never changes, or a memfd that is sealed against
//! shrinking; neither can raise `SIGBUS`. All words are atomic, so the other side may write at any time.

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

/// Pages of a file that another process may map, too. Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` bytes of `file` from `offset` on. `offset` is a multiple of the page size.
    pub(crate) fn new(file: impl AsFd, bytes: usize, offset: u64, access: ProtFlags) -> io::Result<Mapping> {
        Ok(Mapping { at: map(file, bytes, offset, access)?, bytes })
    }

    /// Like [`Mapping::new`], for a file that came through a socket: refused if the file could shrink.
    pub(crate) fn shared(file: &OwnedFd, bytes: usize) -> io::Result<Mapping> {
        check(file, bytes)?;
        Mapping::new(file, bytes, 0, ProtFlags::READ | ProtFlags::WRITE)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.at
    }

    pub(crate) fn length(&self) -> usize {
        self.bytes
    }

    /// The area as a `T`.
    ///
    /// # Safety
    /// Every bit pattern is a valid `T`, and `T` consists of atomic words only.
    #[allow(unsafe_code)] // the one place where a mapping becomes a value
    pub(crate) unsafe fn view<T>(&self) -> NonNull<T> {
        // A mapping begins at a page boundary, and a page has at least 4,096 bytes on every platform.
        assert!(size_of::<T>() <= self.bytes && align_of::<T>() <= 4096, "the area is too small");
        self.at.cast()
    }
}

/// Checks that `file` cannot shrink below `bytes`. An array map is an anonymous inode, not a regular file, and
/// needs no check here: `mmap` refuses a length beyond its end, and a descriptor never changes the kind of its
/// file.
pub(crate) fn check(file: &OwnedFd, bytes: usize) -> io::Result<()> {
    if FileType::from_raw_mode(fstat(file)?.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    match Unshrinkable::check(file)?.size()? < bytes as u64 {
        true => Err(refused("the shared memory has other sizes than the daemon announced")),
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
        // SAFETY: mapped with this size in `map`, and no reference outlives `self`. A failure would mean a wrong
        // address or size, and there is no remedy for it here.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

#[allow(unsafe_code)] // the raw pointer hides that its target is shareable
// SAFETY: the target is only accessed as atomic words; the pointer itself never changes.
unsafe impl Send for Mapping {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// A memory_up: header and body of one mapping, owned by its reader or its writer.
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
        // SAFETY: the total of a geometry is larger than its header. The words behind the header are mapped until
        // drop, aligned (the header is a whole number of cache lines), and atomic.
        unsafe { std::slice::from_raw_parts(self.0.at.add(HEADER_BYTES as usize).cast().as_ptr(), words) }
    }
}

/// A memory_up on the side of its reader.
#[derive(Debug)]
pub struct SharedUp {
    up: Up<UpArea>,
}

impl SharedUp {
    /// Maps the area in `file`. Refused unless it has the agreed sizes.
    pub fn map(file: &OwnedFd, agreed: Geometry) -> io::Result<SharedUp> {
        let up = Up::new(UpArea::of(file, agreed)?).map_err(|error| refused(&error.to_string()))?;
        match up.geometry() == agreed {
            true => Ok(SharedUp { up }),
            false => Err(refused("the shared memory has other sizes than the daemon announced")),
        }
    }

    pub fn up(&mut self) -> &mut Up<UpArea> {
        &mut self.up
    }

    /// The reader, for calls that do not consume.
    pub fn peek(&self) -> &Up<UpArea> {
        &self.up
    }
}

/// A memory_up on the side of a process that writes into it: the daemon, for events that do not happen in the
/// kernel.
#[derive(Debug)]
pub struct OwnedUp {
    writer: UpWriter<UpArea>,
    file: OwnedFd,
}

impl OwnedUp {
    /// Creates a new area in a sealed memfd.
    pub fn create(geometry: Geometry) -> io::Result<OwnedUp> {
        let file = memfd::create("qfabric-up", geometry.total_bytes() as usize)?;
        let area = UpArea::of(&file, geometry)?;
        area.header().initialize(geometry);
        Ok(OwnedUp { writer: UpWriter::new(area, geometry), file })
    }

    pub fn writer(&mut self) -> &mut UpWriter<UpArea> {
        &mut self.writer
    }

    /// The file to pass to the reader.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }
}

/// An area whose content is a value of a fixed size.
pub struct Shared<T: Area> {
    at: NonNull<T>,
    mapping: Mapping,
}

impl<T: Area> fmt::Debug for Shared<T> {
    /// Prints the address and the length; the content is too long to print.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.mapping).finish()
    }
}

/// A type that a [`Shared`] may hold.
///
/// # Safety
/// The type consists of atomic words only, so that every bit pattern is a valid value.
#[allow(unsafe_code)] // what `Shared` relies on
pub unsafe trait Area: Send + Sync {}

#[allow(unsafe_code)] // see the trait
// SAFETY: `Down` consists of atomic words only.
unsafe impl Area for Down {}
#[allow(unsafe_code)] // see the trait
// SAFETY: `SocketPage` consists of atomic words only.
unsafe impl Area for SocketPage {}
#[allow(unsafe_code)] // see the trait
// SAFETY: `JobRing` consists of atomic words only.
unsafe impl Area for JobRing {}
#[allow(unsafe_code)] // see the trait
// SAFETY: `MessageRings` consists of atomic words only.
unsafe impl Area for MessageRings {}

/// The memory_down of a subscription.
pub type SharedDown = Shared<Down>;
/// The page of the I/O module.
pub type SharedSockets = Shared<SocketPage>;

impl<T: Area> Shared<T> {
    /// Creates a new area in a sealed memfd, and returns the file to pass to the other side.
    pub fn create(name: &str) -> io::Result<(Shared<T>, OwnedFd)> {
        let file = memfd::create(name, size_of::<T>())?;
        Ok((Shared::map(&file)?, file))
    }

    #[allow(unsafe_code)] // the areas are values of atomic words
    pub fn map(file: &OwnedFd) -> io::Result<Shared<T>> {
        let mapping = Mapping::shared(file, size_of::<T>())?;
        // SAFETY: an `Area` consists of atomic words only.
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
// SAFETY: the target consists of atomic words only, and `Area` requires `Send` and `Sync`.
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
    fn a_written_event_is_read_on_the_other_side() {
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
        // The first mapping of each array is of the second area now; the pattern drops the other mapping.
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
    fn attributes_are_visible_in_every_mapping_of_the_area() {
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
