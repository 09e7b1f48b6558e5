//! Copies of this process that guard something and use only system calls: no lock and no allocation, because another
//! thread of the copied process may have held a lock.
#![allow(unsafe_code)] // fork, and system calls of the child

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::ptr;

/// Forks; the child runs `body`, which never returns. The child ends without SIGCHLD for this process, whose program
/// may collect its own children. Signals are blocked, so that no handler of this process ever runs in the child.
pub(crate) fn copy_process(body: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: zero is a valid signal set; all three calls get pointers to live sets.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: as above.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    // SAFETY: without flags, `clone` copies this process as `fork` does. The child runs only `body`, which makes system
    // calls and neither allocates nor takes a lock.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if pid == 0 {
        body();
    }
    let error = io::Error::last_os_error();
    // SAFETY: restores the mask of this thread.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    if pid < 0 { Err(error) } else { Ok(pid as i32) }
}

/// For the child: leaves the session, takes a name, and closes all descriptors but `keep`, which become descriptors 0, 1
/// and so on.
pub(crate) fn detach<const N: usize>(name: &CStr, keep: [RawFd; N]) {
    // SAFETY: system calls with numbers and a live string; the child uses no descriptor of the copied process.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        // First to numbers above all targets, so that none is overwritten before it is copied.
        let copies = keep.map(|from| libc::fcntl(from, libc::F_DUPFD, N as RawFd));
        for (to, from) in (0..).zip(copies) {
            libc::dup2(from, to);
        }
        libc::syscall(libc::SYS_close_range, N as u32, u32::MAX, 0u32);
    }
}

/// Waits for the end of a child that [`copy_process`] made.
pub(crate) fn wait_for(pid: i32) {
    // SAFETY: waits for the own child by its id and writes no status.
    while unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}
