//! Whether a process is over, as a descriptor that can be polled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process under watch; the descriptor becomes readable when it has ended. Not fooled by a reused number.
#[derive(Debug)]
pub struct Process {
    fd: OwnedFd,
}

impl Process {
    /// Watches a process; `ESRCH` where it is gone. To be sure that it is still the one meant, compare its
    /// [`crate::threads::start_time`] after this call.
    pub fn watch(pid: i32) -> io::Result<Process> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let pid = Some(pid).filter(|p| *p > 0).and_then(Pid::from_raw).ok_or_else(gone)?;
        Ok(Process { fd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Whether it has ended.
    pub fn ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(n) if n > 0)
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_end_of_a_process_is_seen_even_before_it_is_reaped() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let process = Process::watch(child.id() as i32).unwrap();
        assert!(!process.ended());
        child.kill().unwrap();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
        assert!(process.ended());
        child.wait().unwrap();
        assert!(process.ended());
    }

    #[test]
    fn a_process_that_is_gone_cannot_be_watched() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        for pid in [child.id() as i32, 0, -1] {
            assert!(Process::watch(pid).is_err(), "{pid}");
        }
    }
}
