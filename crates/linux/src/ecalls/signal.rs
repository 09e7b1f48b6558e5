//! Real-time signals with data (003 §3.1).

use std::io;
use std::os::fd::BorrowedFd;

/// Queues `signo` (34 to 64 are real-time) with 64 bits of data for the process of a pidfd, in order with those
/// before it. `EAGAIN`: the receiver's queue (`RLIMIT_SIGPENDING`) is full; nothing was queued.
pub fn signal_queue(pidfd: BorrowedFd<'_>, signo: i32, value: u64) -> io::Result<()> {
    let _ = (pidfd, signo, value);
    Err(io::ErrorKind::Unsupported.into())
}
