//! Sends real-time signals with data (003 §3.1).
#![allow(unsafe_code)] // fills the signal information that the kernel reads

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `siginfo_t` of a queued signal (include/uapi/asm-generic/siginfo.h, LP64).
#[repr(C)]
struct Queued {
    signo: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    pid: i32,
    uid: u32,
    value: u64,
    _rest: [u8; 96],
}

const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>() && offset_of!(Queued, value) == 24);

/// Queues `signo` (34 to 64 are real-time) with 64 bits of data for the process of a pidfd; signals arrive in order.
/// `EAGAIN`: the receiver's queue (`RLIMIT_SIGPENDING`) is full and nothing was queued.
pub fn signal_queue(pidfd: BorrowedFd<'_>, signo: i32, value: u64) -> io::Result<()> {
    let (pid, uid) = (std::process::id() as i32, rustix::process::getuid().as_raw());
    let info = Queued { signo, errno: 0, code: libc::SI_QUEUE, _pad: 0, pid, uid, value, _rest: [0; 96] };
    // SAFETY: `info` is live and has the size of siginfo_t; the kernel only reads it.
    let rc = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signo, &raw const info, 0u32) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_signal_carries_its_data() {
        let own = rustix::process::getpid();
        let pidfd = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).unwrap();
        let signo = libc::SIGRTMIN() + 3;
        // A signal to this process could be delivered to any thread that does not block it, and the test cannot block
        // it in all threads. So the receiver is a child process.
        let pid = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        let other = rustix::process::Pid::from_raw(pid.id() as i32).unwrap();
        let other = rustix::process::pidfd_open(other, rustix::process::PidfdFlags::empty()).unwrap();
        signal_queue(other.as_fd(), signo, 7).unwrap();
        let status = { pid }.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signo));
        assert!(signal_queue(pidfd.as_fd(), 1000, 0).is_err());
    }
}
