//! Identifies the calling process: a child made by `fork` is another process than its parent.
//!
//! Problem: a child has copies of its parent's memory, descriptors and mappings, so that an object that stands for
//! a promise to the parent looks valid in the child. Approach: one page, which the kernel gives to children as
//! zeros (`MADV_WIPEONFORK`, Linux 4.14), holds the number of this process. The counter that draws these numbers is
//! in ordinary memory and is copied, so a child's number differs from those of all its ancestors. A check costs two
//! loads. It also detects a raw `clone`, which runs no hook of `pthread_atfork`. Process identifiers do not work
//! here: reading one is a system call, and a child has the same identifier as its ancestor if both are the first of
//! a PID namespace.
#![allow(unsafe_code)] // a mapping of the library's own

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Points to the number of this process, 0 if none was drawn yet; null until the first call. Never unmapped.
static NUMBER: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// Count of numbers drawn by this process and its ancestors.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// The identity of a process; a parent and its children have different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// The calling process.
    ///
    /// # Errors
    /// The kernel has no page of memory left, or does not support `MADV_WIPEONFORK`.
    pub fn current() -> io::Result<Process> {
        Ok(Process(drawn(number()?)))
    }

    /// Whether this is the calling process; in a child made by `fork` it is not. Costs no system call.
    pub fn is_current(self) -> bool {
        Process::current().is_ok_and(|current| current == self)
    }
}

/// Draws a number if there is none yet. If two threads draw at once, the first number stays.
fn drawn(number: &AtomicU64) -> u64 {
    match number.load(Ordering::Relaxed) {
        0 => {
            let fresh = DRAWN.fetch_add(1, Ordering::Relaxed) + 1;
            number
                .compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed)
                .map_or_else(|first| first, |_| fresh)
        }
        known => known,
    }
}

/// Takes no lock: if a child is forked while another thread is here, the lock would stay locked in the child for
/// ever.
fn number() -> io::Result<&'static AtomicU64> {
    let mut at = NUMBER.load(Ordering::Acquire);
    if at.is_null() {
        at = publish(wiped_page()?);
    }
    // SAFETY: a whole page is mapped there for ever, zeros and the values that `drawn` writes are valid, and the
    // word is atomic.
    Ok(unsafe { &*at })
}

/// A page of zeros, which is a page of zeros again in each child.
fn wiped_page() -> io::Result<*mut AtomicU64> {
    let bytes = rustix::param::page_size();
    // SAFETY: a new private mapping at an address of the kernel's choice overlaps nothing.
    let at = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)? };
    // SAFETY: just mapped with this size; only the content in children changes.
    match unsafe { madvise(at, bytes, Advice::LinuxWipeOnFork) } {
        Ok(()) => Ok(at.cast()),
        Err(error) => {
            unmap(at.cast());
            Err(error.into())
        }
    }
}

fn publish(page: *mut AtomicU64) -> *mut AtomicU64 {
    match NUMBER.compare_exchange(ptr::null_mut(), page, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => page,
        Err(first) => {
            unmap(page);
            first
        }
    }
}

/// Unmaps a page that was never published.
fn unmap(page: *mut AtomicU64) {
    // SAFETY: mapped by `wiped_page` with this size, and no reference into it was made.
    let _ = unsafe { munmap(page.cast(), rustix::param::page_size()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_fork() -> libc::pid_t {
        // SAFETY: the caller restricts the child to what a child of a process with threads may do.
        unsafe { libc::fork() }
    }

    fn by_clone() -> libc::pid_t {
        // SAFETY: as above; without flags it is a fork that runs no hook of the C library.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t }
    }

    /// Whether `act` returns `true` in a child. `act` may use only atomic words and system calls.
    fn in_child(fork: fn() -> libc::pid_t, act: impl FnOnce() -> bool) -> bool {
        match fork() {
            // SAFETY: ends the child at once, without the exit handlers of the parent.
            0 => unsafe { libc::_exit(i32::from(!act())) },
            child => {
                let mut status = 0;
                // SAFETY: `status` may be written; the child is ours and no other code waits for it.
                let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
                child > 0 && ended == child && status == 0
            }
        }
    }

    #[test]
    fn a_process_stays_the_same_in_all_its_threads() {
        let here = Process::current().unwrap();
        let there = std::thread::spawn(|| Process::current().unwrap()).join().unwrap();
        assert!(here == there && here.is_current());
    }

    #[test]
    #[cfg_attr(qfabric_tsan, ignore = "ThreadSanitizer does not support a raw clone")]
    fn a_child_is_another_process_and_its_child_is_a_third_however_it_was_forked() {
        let parent = Process::current().unwrap();
        for fork in [by_fork, by_clone] {
            assert!(in_child(fork, || {
                let Ok(child) = Process::current() else { return false };
                let differs = !parent.is_current() && child.is_current() && child != parent;
                differs && in_child(fork, || !parent.is_current() && !child.is_current())
            }));
            assert!(parent.is_current(), "the parent keeps its identity");
        }
    }
}
