//! Whether a process is over, as a descriptor that can be polled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A process under watch; the descriptor becomes readable when it has ended. Not fooled by a reused number.
#[derive(Debug)]
pub struct Process {
    fd: OwnedFd,
}

impl Process {
    /// Watches a process; `ESRCH` where it is gone.
    pub fn watch(pid: i32) -> io::Result<Process> {
        let pid = rustix::process::Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        Ok(Process { fd })
    }

    /// Whether it has ended.
    pub fn ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(n) if n > 0)
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
