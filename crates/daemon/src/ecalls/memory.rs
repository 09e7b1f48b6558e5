//! The daemon's side of the shared areas: BPF maps where handlers in the kernel write them, memfds elsewhere.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use qfabric_linux::ecalls::{DownMemory, UpMemory};
use qfabric_shm::{OwnedUp, SharedDown};
use qfabric_sync::{Lock, assert_may_block, rank};
use qfabric_types::memory::{self, Geometry, Stamp};

use crate::control::{wake, wake_descriptor};

/// A session's memory_down.
#[derive(Debug)]
pub(crate) enum Down {
    /// Handlers in the kernel see it.
    Kernel(DownMemory),
    /// There is no BPF here: only the daemon's handlers do.
    Plain { area: SharedDown, file: OwnedFd },
}

impl Down {
    /// A fresh area.
    pub fn new(for_kernel: bool) -> io::Result<Down> {
        assert_may_block("making shared memory");
        if for_kernel {
            return DownMemory::new().map(Down::Kernel);
        }
        let (area, file) = SharedDown::create("qfabric-down")?;
        Ok(Down::Plain { area, file })
    }

    /// Its words.
    pub fn words(&self) -> &memory::Down {
        match self {
            Down::Kernel(map) => map.down(),
            Down::Plain { area, .. } => area,
        }
    }

    /// What the application is to be given.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Down::Kernel(map) => map.fd(),
            Down::Plain { file, .. } => file.as_fd(),
        }
    }

    /// As the kernel needs it, if it is for the kernel.
    pub fn map(&self) -> Option<&DownMemory> {
        match self {
            Down::Kernel(map) => Some(map),
            Down::Plain { .. } => None,
        }
    }
}

/// A subscription's memory_up.
#[derive(Debug)]
pub(crate) enum Up {
    /// Handlers in the kernel write it.
    Kernel(UpMemory),
    /// The daemon writes it.
    Plain { area: Lock<OwnedUp, { rank::MEMORY_UP }>, wake: OwnedFd },
}

impl Up {
    /// A fresh area that a handler in the kernel writes, or the daemon.
    pub fn new(geometry: Geometry, by_kernel: bool) -> io::Result<Up> {
        if by_kernel {
            return UpMemory::new(geometry).map(Up::Kernel);
        }
        Ok(Up::Plain { area: Lock::new(OwnedUp::create(geometry)?), wake: wake_descriptor()? })
    }

    /// Writes one event, and wakes a reader that sleeps. `false`: dropped for want of room.
    pub fn write(&self, data: &[u8], stamp: Stamp, position: Option<u64>) -> bool {
        match self {
            // Written by its handler; a system call that fails drops the event as a full area does.
            Up::Kernel(map) => map.put(data, stamp, position.and_then(|p| u32::try_from(p).ok())).unwrap_or(false),
            Up::Plain { area, wake: fd } => {
                let mut area = area.lock();
                let written = area.writer().write(data, stamp, position);
                if written && area.writer().must_wake() {
                    wake(fd);
                }
                written
            }
        }
    }

    /// What the application is to be given: the area, and what it sleeps on.
    pub fn with_fds<A>(&self, act: impl FnOnce([BorrowedFd<'_>; 2]) -> A) -> A {
        match self {
            Up::Kernel(map) => act([map.fd(), map.wake_fd()]),
            Up::Plain { area, wake } => {
                let area = area.lock();
                act([area.file().as_fd(), wake.as_fd()])
            }
        }
    }

    /// As the kernel needs it, if a handler there writes it.
    pub fn map(&self) -> Option<&UpMemory> {
        match self {
            Up::Kernel(map) => Some(map),
            Up::Plain { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_shm::{SharedUp, Wake};
    use qfabric_types::memory::Layout;
    use std::time::Duration;

    #[test]
    fn a_sleeping_reader_is_woken_and_finds_the_event() {
        let geometry = Geometry::new(Layout::Ring, 4, 8).unwrap();
        let up = Up::new(geometry, false).unwrap();
        let [file, wake] = up.with_fds(|fds| fds.map(|fd| fd.try_clone_to_owned().unwrap()));
        let (mut reader, wake) = (SharedUp::map(&file, geometry).unwrap(), Wake::new(wake).unwrap());
        assert!(reader.up().may_sleep());
        assert!(up.write(&[3; 8], Stamp::default(), None));
        assert!(wake.wait(Duration::from_secs(5)).unwrap());
        let mut data = [0; 8];
        assert!(reader.up().take(&mut data).is_some() && data == [3; 8]);
    }
}
