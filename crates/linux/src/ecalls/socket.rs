//! The I/O event delivery module (003 §5.2): which of an application's sockets are ready, in shared memory.

use std::io;
use std::os::fd::BorrowedFd;

use qfabric_types::memory::SocketPage;

use super::{InstallError, Kernel};

/// One application's module. Dropping it takes its hooks out.
#[derive(Debug)]
pub struct SocketModule {}

impl SocketModule {
    /// A fresh page and its hooks.
    pub fn open(kernel: &Kernel) -> Result<SocketModule, InstallError> {
        let _ = kernel;
        Err(InstallError::Steps("not built yet".into()))
    }

    /// The page: to be mapped shared for reading and writing, `size_of::<SocketPage>()` from offset 0.
    pub fn page_fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }

    /// The wake descriptor (a BPF ring buffer of one page).
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }

    /// Who holds this descriptor may bind its sockets with [`bind_socket`].
    pub fn bind_fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }

    /// The page, mapped in this process.
    pub fn page(&self) -> &SocketPage {
        unimplemented!()
    }
}

/// Binds `socket` to its own descriptor number in the module that `bind_fd` belongs to: one system call. What had
/// arrived before is not told: look once after binding.
pub fn bind_socket(bind_fd: BorrowedFd<'_>, socket: BorrowedFd<'_>) -> io::Result<()> {
    let _ = (bind_fd, socket);
    Err(io::ErrorKind::Unsupported.into())
}

/// As [`bind_socket`] for a socket that has the number `slot` in another process (the daemon binds for an
/// application that may not).
pub fn bind_socket_as(bind_fd: BorrowedFd<'_>, socket: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
    let _ = (bind_fd, socket, slot);
    Err(io::ErrorKind::Unsupported.into())
}
