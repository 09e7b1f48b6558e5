//! The daemon's side of shared memory: BPF maps if handlers in the kernel write it, memfds otherwise.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use qfabric_linux::ecalls::{DownMemory, FileWatch, KernelObject, UpMemory};
use qfabric_shm::{OwnedUp, SharedDown};
use qfabric_sync::{Lock, assert_may_block, rank};
use qfabric_types::memory::{self, Geometry, Stamp};

use crate::control::{wake, wake_descriptor};

/// The memory_down of a session.
#[derive(Debug)]
pub(crate) enum Down {
    /// Shared with handlers in the kernel.
    Kernel(DownMemory),
    /// Shared with the daemon's handlers only, because there is no BPF here.
    Plain { area: SharedDown, file: OwnedFd },
}

impl Down {
    /// Creates an area.
    pub(super) fn new(for_kernel: bool) -> io::Result<Down> {
        assert_may_block("making shared memory");
        if for_kernel {
            return DownMemory::new().map(Down::Kernel);
        }
        let (area, file) = SharedDown::create("qfabric-down")?;
        Ok(Down::Plain { area, file })
    }

    /// The attributes in the area.
    pub(super) fn words(&self) -> &memory::Down {
        match self {
            Down::Kernel(map) => map.down(),
            Down::Plain { area, .. } => area,
        }
    }

    /// The descriptor for the application.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Down::Kernel(map) => map.fd(),
            Down::Plain { file, .. } => file.as_fd(),
        }
    }

    /// What the application receives the descriptor of.
    pub(super) fn object(&self, files: &FileWatch) -> io::Result<KernelObject> {
        match self {
            Down::Kernel(map) => map.object(),
            Down::Plain { file, .. } => files.watch(file.as_fd()),
        }
    }

    /// The map for handlers in the kernel, if it is one.
    pub(super) fn map(&self) -> Option<&DownMemory> {
        match self {
            Down::Kernel(map) => Some(map),
            Down::Plain { .. } => None,
        }
    }
}

/// The memory_up of a subscription.
#[derive(Debug)]
pub(crate) enum Up {
    /// Written by a handler in the kernel.
    Kernel(UpMemory),
    /// Written by the daemon.
    Plain { area: Lock<OwnedUp, { rank::MEMORY_UP }>, wake: OwnedFd },
}

impl Up {
    /// Creates an area that a handler in the kernel writes, or the daemon.
    pub(super) fn new(geometry: Geometry, by_kernel: bool) -> io::Result<Up> {
        if by_kernel {
            return UpMemory::new(geometry).map(Up::Kernel);
        }
        Ok(Up::Plain { area: Lock::new(OwnedUp::create(geometry)?), wake: wake_descriptor()? })
    }

    /// Writes one event and wakes a sleeping reader. `false`: no room, the event is dropped.
    pub(super) fn write(&self, data: &[u8], stamp: Stamp, position: Option<u64>) -> bool {
        match self {
            // Its handler writes it; a failed system call drops the event, as a full area does.
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

    /// Passes the descriptors for the application to `act`: the area, and the descriptor on which a reader sleeps.
    pub(super) fn with_fds<A>(&self, act: impl FnOnce([BorrowedFd<'_>; 2]) -> A) -> A {
        match self {
            Up::Kernel(map) => act([map.fd(), map.wake_fd()]),
            Up::Plain { area, wake } => {
                let area = area.lock();
                act([area.file().as_fd(), wake.as_fd()])
            }
        }
    }

    /// What the application receives the descriptors of.
    pub(super) fn objects(&self, files: &FileWatch) -> io::Result<Vec<KernelObject>> {
        match self {
            Up::Kernel(map) => map.objects().map(Vec::from),
            Up::Plain { area, .. } => {
                let file = area.lock().file().try_clone()?;
                Ok(vec![files.watch(file.as_fd())?])
            }
        }
    }

    /// The map for a handler in the kernel, if it is one.
    pub(super) fn map(&self) -> Option<&UpMemory> {
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
