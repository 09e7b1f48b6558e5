//! A [`JobRing`] in a sealed memfd.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use qfabric_types::ring::JobRing;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const SIZE: usize = size_of::<JobRing>();

/// A ring that another process has mapped, or will map, too. Unmapped when dropped.
#[derive(Debug)]
pub struct SharedRing {
    at: NonNull<JobRing>,
}

impl SharedRing {
    /// Makes a fresh ring (daemon). The file is to be handed out with [`crate::fds::send`]: it can neither
    /// shrink nor grow, whatever its receiver does.
    pub fn create() -> io::Result<(SharedRing, OwnedFd)> {
        let file = memfd_create("qfabric-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, SIZE as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let ring = map(&file)?;
        ring.initialize();
        Ok((ring, file))
    }

    /// Maps a ring made by somebody else (application). Refused unless it is sealed against shrinking, has
    /// the right size, and holds a ring of this version.
    pub fn map(file: OwnedFd) -> io::Result<SharedRing> {
        check_seals(&file)?;
        check_size(&file)?;
        let ring = map(&file)?;
        if ring.is_valid() {
            Ok(ring)
        } else {
            Err(refused("the shared memory is no job ring of this version; use a daemon of the same version"))
        }
    }
}

/// Looked at before the size: what is sealed stays sealed, so the size seen afterwards is final.
fn check_seals(file: &OwnedFd) -> io::Result<()> {
    match fcntl_get_seals(file) {
        Ok(seals) if seals.contains(SealFlags::SHRINK) => Ok(()),
        Ok(seals) => Err(refused(&format!("the shared memory could shrink under its reader: seals {seals:?}"))),
        Err(errno) => Err(refused(&format!("the shared memory is no memfd: {errno}"))),
    }
}

fn check_size(file: &OwnedFd) -> io::Result<()> {
    let size = fstat(file)?.st_size;
    if size == SIZE as i64 {
        return Ok(());
    }
    Err(refused(&format!("the shared memory has {size} bytes, a job ring {SIZE}; use a daemon of the same version")))
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[allow(unsafe_code)] // mapping shared memory is what this crate is for
fn map(file: impl AsFd) -> io::Result<SharedRing> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let at = unsafe { mmap(std::ptr::null_mut(), SIZE, access, MapFlags::SHARED, file, 0)? };
    let at = NonNull::new(at.cast::<JobRing>()).expect("the kernel maps nothing at address zero");
    Ok(SharedRing { at })
}

impl Deref for SharedRing {
    type Target = JobRing;

    #[allow(unsafe_code)] // the mapping outlives the reference
    fn deref(&self) -> &JobRing {
        // SAFETY: `at` is page-aligned, SIZE bytes are mapped until drop and backed by a file that cannot
        // shrink, every bit pattern is a JobRing, and all its words are atomic, so the other process may
        // write at any time.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for SharedRing {
    #[allow(unsafe_code)] // the other half of mapping
    fn drop(&mut self) {
        // SAFETY: mapped with this size in `map`, and no reference outlives `self`. Failure would mean a
        // wrong address or size; there is nothing to be done about it here.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), SIZE) };
    }
}

#[allow(unsafe_code)] // the raw pointer hides that its target is shareable
// SAFETY: the target is a JobRing, which is Send and Sync; the pointer is only read.
unsafe impl Send for SharedRing {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for SharedRing {}

const _: fn() = || {
    fn shareable<T: Send + Sync>() {}
    shareable::<JobRing>();
};

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::ring::{Consumer, Grant, JobEvent, Producer, Pushed};
    use qfabric_types::{Foresight, Instant, Nanos, Overload, Share};

    fn memfd(size: usize, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, size as u64).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    fn refusal(file: OwnedFd) -> String {
        SharedRing::map(file).unwrap_err().to_string()
    }

    #[test]
    fn two_mappings_see_each_other() {
        let (daemon, file) = SharedRing::create().unwrap();
        let application = SharedRing::map(file).unwrap();
        let event = JobEvent::Begin { k: 7, known: Foresight::Hint(1.5) };
        assert_eq!(Producer::default().push(&application, event, Instant::new(1)), Pushed::Wake);
        assert_eq!(Consumer::default().take(&daemon), Some(event));
        let overload = Some(Overload { wanted: Share::ONE, granted: Share::from_ppm(7) });
        let (budget, period, predicted) = (Nanos::new(5), Nanos::new(9), Nanos::new(4));
        let grant = Grant { budget, period, error_ns: -3, jobs: 1, overload, predicted };
        daemon.publish(grant);
        assert_eq!(application.grant(), grant);
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        assert!(refusal(memfd(SIZE, SealFlags::GROW)).contains("could shrink"));
        assert!(refusal(tempfile::tempfile().unwrap().into()).contains("no memfd"));
    }

    #[test]
    fn memory_of_another_size_is_refused_with_both_numbers() {
        for size in [0, 64, SIZE - 1, SIZE + 4096] {
            let text = refusal(memfd(size, SealFlags::SHRINK));
            assert!(text.contains(&size.to_string()) && text.contains(&SIZE.to_string()), "{text}");
        }
    }

    #[test]
    fn memory_that_holds_no_ring_is_refused() {
        assert!(refusal(memfd(SIZE, SealFlags::SHRINK)).contains("no job ring"));
    }

    #[test]
    fn a_receiver_can_neither_shrink_nor_grow_the_ring_nor_unseal_it() {
        let (_ring, file) = SharedRing::create().unwrap();
        for size in [0, SIZE as u64 - 1, SIZE as u64 + 1] {
            assert_eq!(ftruncate(&file, size), Err(rustix::io::Errno::PERM));
        }
        assert_eq!(fcntl_add_seals(&file, SealFlags::WRITE), Err(rustix::io::Errno::PERM));
    }
}
