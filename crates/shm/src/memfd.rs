//! Files behind shared memory: made here with their size fixed for ever, or come from elsewhere and looked at first.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// A fresh memfd of `bytes` zeros that can neither shrink nor grow, whatever its receiver does.
pub(crate) fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// A file that can never be smaller than it is now: a mapping of what it has raises no `SIGBUS`. Its size is read through
/// this alone: read before the seals were seen, it could have changed until they were set.
pub(crate) struct Unshrinkable<'a>(&'a OwnedFd);

impl<'a> Unshrinkable<'a> {
    /// Refused unless it is a memfd that is sealed against shrinking.
    pub fn check(file: &'a OwnedFd) -> io::Result<Self> {
        match fcntl_get_seals(file) {
            Ok(seals) if seals.contains(SealFlags::SHRINK) => Ok(Unshrinkable(file)),
            Ok(seals) => Err(refused(&format!("the shared memory could shrink under its reader: seals {seals:?}"))),
            Err(errno) => Err(refused(&format!("the shared memory is no memfd: {errno}"))),
        }
    }

    /// Bytes that it has, and will have at least.
    pub fn size(&self) -> io::Result<u64> {
        Ok(fstat(self.0)?.st_size as u64)
    }
}

pub(crate) fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    const BYTES: usize = 1 << 16;
    const ROUNDS: usize = 2_000;

    #[test]
    fn memory_that_shrinks_while_it_is_looked_at_is_refused() {
        let barrier = Barrier::new(2);
        for _ in 0..ROUNDS {
            let file = memfd_create("shrinking", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, BYTES as u64).unwrap();
            let seen = thread::scope(|scope| {
                scope.spawn(|| {
                    barrier.wait();
                    ftruncate(&file, 0).unwrap();
                    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
                });
                barrier.wait();
                Unshrinkable::check(&file).and_then(|file| file.size())
            });
            // Refused before the seal; with it, the file has the size that it has for ever.
            assert!(seen.is_err() || seen.is_ok_and(|bytes| bytes == 0), "a size from before the seals");
        }
    }
}
