//! The files behind shared memory: created here with a size fixed for ever, or received from another process and
//! checked.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// Creates a memfd of `bytes` zeros that can neither shrink nor grow, whatever its receiver does.
pub(crate) fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    create_with(name, bytes, MemfdFlags::empty())
}

/// Like [`create`], in huge pages of the host; `bytes` is a multiple of their size. Whether enough pages are free shows
/// when the file is mapped.
pub(crate) fn create_huge(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    create_with(name, bytes, MemfdFlags::HUGETLB)
}

fn create_with(name: &str, bytes: usize, pages: MemfdFlags) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | pages)?;
    ftruncate(&file, bytes as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// A file that can never be smaller than it is now: a mapping within its size raises no `SIGBUS`. The size is
/// available only through this type, because a size that was read before the seals were checked could have changed
/// in between.
pub(crate) struct Unshrinkable<'a>(&'a OwnedFd);

impl<'a> Unshrinkable<'a> {
    /// Refused unless it is a memfd that is sealed against shrinking.
    pub(crate) fn check(file: &'a OwnedFd) -> io::Result<Self> {
        match fcntl_get_seals(file) {
            Ok(seals) if seals.contains(SealFlags::SHRINK) => Ok(Unshrinkable(file)),
            Ok(seals) => Err(refused(&format!("the shared memory could shrink under its reader: seals {seals:?}"))),
            Err(errno) => Err(refused(&format!("the shared memory is not a memfd: {errno}"))),
        }
    }

    /// Its size in bytes now; the size cannot decrease.
    pub(crate) fn size(&self) -> io::Result<u64> {
        Ok(fstat(self.0)?.st_size as u64)
    }
}

pub(crate) fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn the_size_is_read_after_the_seals_were_checked() {
        let file = memfd_create("shrinking", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 1 << 16).unwrap();
        assert!(Unshrinkable::check(&file).is_err());
        ftruncate(&file, 1 << 12).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let sealed = Unshrinkable::check(&file).unwrap();
        assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
        assert_eq!(sealed.size().unwrap(), 1 << 12);
    }
}
