//! Real-time signals with data, read through a descriptor (signalfd): they never interrupt the code that runs.

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

const BYTES: usize = size_of::<libc::signalfd_siginfo>();

/// Blocked signals of one number; each carries 64 bits of data. They are read in the order in which they were sent.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks signal `number` from now on, for the calling thread and the threads that it creates later. Call it
    /// before other threads exist: the kernel delivers the signal to any thread of the process that does not block
    /// it.
    #[allow(unsafe_code)] // signal masks have no safe wrapper that knows real-time signals
    pub fn keep(number: i32) -> io::Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset makes the set valid before the other calls read it.
        let (blocked, fd) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), number);
            let blocked = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            (blocked, libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))
        };
        if blocked != 0 {
            return Err(io::Error::from_raw_os_error(blocked));
        }
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just created, and it has no other owner.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The data of the next signal; `None` if no signal arrives within `patience`.
    pub fn next(&self, patience: Duration) -> io::Result<Option<u64>> {
        let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout)))? == 0 {
            return Ok(None);
        }
        let mut info = [0; BYTES];
        match rustix::io::read(&self.fd, &mut info) {
            Ok(_) => Ok(Some(data(&info))),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn data(info: &[u8; BYTES]) -> u64 {
    const AT: usize = offset_of!(libc::signalfd_siginfo, ssi_ptr);
    u64::from_ne_bytes(info[AT..AT + 8].try_into().expect("a slice of eight bytes"))
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_waits_until_it_is_taken() {
        let signals = Signals::keep(libc::SIGRTMAX()).unwrap();
        assert_eq!(signals.next(Duration::ZERO).unwrap(), None);
        let me = rustix::process::getpid().as_raw_nonzero().get();
        #[allow(unsafe_code)] // no safe wrapper
        // SAFETY: the arguments are plain values.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, me, libc::syscall(libc::SYS_gettid), libc::SIGRTMAX()) };
        assert_eq!(sent, 0);
        assert_eq!(signals.next(Duration::from_secs(5)).unwrap(), Some(0));
    }
}
