//! Tells whether a process has ended, through a descriptor that can be polled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A watched process. The descriptor becomes readable when the process has ended; a reused pid does not confuse it.
#[derive(Debug)]
pub struct Process {
    fd: OwnedFd,
}

impl Process {
    /// Watches a process; `ESRCH` if it has ended. To be sure that the pid still belongs to the intended process,
    /// compare its [`crate::threads::start_time`] after this call.
    pub fn watch(pid: i32) -> io::Result<Process> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let pid = Some(pid).filter(|p| *p > 0).and_then(Pid::from_raw).ok_or_else(gone)?;
        Ok(Process { fd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    pub fn ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(n) if n > 0)
    }
}

impl From<Process> for OwnedFd {
    fn from(process: Process) -> OwnedFd {
        process.fd
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
    fn an_ended_process_is_detected_before_it_is_reaped() {
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
    fn an_ended_process_cannot_be_watched() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        for pid in [child.id() as i32, 0, -1] {
            assert!(Process::watch(pid).is_err(), "{pid}");
        }
    }
}
