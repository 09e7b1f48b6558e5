//! Wraps system calls that no safe library offers: scheduling attributes, CPU clocks of other processes, perf events.
//! Each function is safe to call with any arguments.
#![allow(unsafe_code)] // the system calls of this room; other modules use these safe functions

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys::bindings::perf_event_attr;

/// `struct sched_attr` (include/uapi/linux/sched/types.h), second version. Times in nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawSchedAttr {
    pub size: u32,
    pub policy: u32,
    pub flags: u64,
    pub nice: i32,
    pub priority: u32,
    pub runtime_ns: u64,
    pub deadline_ns: u64,
    pub period_ns: u64,
    pub util_min: u32,
    pub util_max: u32,
}

pub(crate) const SCHED_ATTR_SIZE: u32 = 56; // SCHED_ATTR_SIZE_VER1
const _: () = assert!(size_of::<RawSchedAttr>() == SCHED_ATTR_SIZE as usize);

pub(crate) fn sched_setattr(tid: i32, attr: &RawSchedAttr) -> io::Result<()> {
    let attr = RawSchedAttr { size: SCHED_ATTR_SIZE, ..*attr };
    // SAFETY: the pointer is to a live struct whose size field holds its length; the kernel only reads it.
    let rc = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0u32) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn sched_getattr(tid: i32, flags: u32) -> io::Result<RawSchedAttr> {
    let mut attr = RawSchedAttr::default();
    // SAFETY: the kernel writes at most the passed size into the live struct.
    let rc = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, SCHED_ATTR_SIZE, flags) };
    if rc == 0 { Ok(attr) } else { Err(io::Error::last_os_error()) }
}

/// Reads a clock that is given by its id, such as the CPU clock of a process.
pub(crate) fn read_clock(number: libc::clockid_t) -> io::Result<libc::timespec> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec into the live struct, or refuses an unknown clock.
    let rc = unsafe { libc::clock_gettime(number, &raw mut time) };
    if rc == 0 { Ok(time) } else { Err(io::Error::last_os_error()) }
}

/// Tells the kernel that a range of another process will be accessed soon: `MADV_WILLNEED`.
pub(crate) fn will_need(process: &OwnedFd, start: u64, length: u64) -> io::Result<()> {
    let range = libc::iovec { iov_base: std::ptr::without_provenance_mut(start as usize), iov_len: length as usize };
    // SAFETY: the kernel reads the live iovec; its addresses are those of the other process, which this advice lets
    // only read.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            &raw const range,
            1usize,
            libc::MADV_WILLNEED,
            0u32,
        )
    };
    if rc >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Fails if the process of a pidfd has ended and was waited for.
pub(crate) fn is_alive(process: &OwnedFd) -> io::Result<()> {
    // SAFETY: signal 0 is not delivered; without an information structure the kernel reads no memory.
    let rc = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), 0, std::ptr::null::<libc::siginfo_t>(), 0u32)
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn perf_event_open(attr: &mut perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    attr.size = size_of::<perf_event_attr>() as u32;
    let flags = u64::from(perf_event_open_sys::bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is live and its size field holds its length; the kernel only reads it.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attr, pid, cpu, -1, flags as _) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor for this process; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes `event` write into the ring of `target`.
pub(crate) fn perf_redirect(event: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are open; the call takes a descriptor by value and keeps no pointer.
    let rc = unsafe { perf_event_open_sys::ioctls::SET_OUTPUT(event.as_raw_fd(), target.as_raw_fd()) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns after every CPU has left the section (in the kernel, or preemptible) that it was running when this was
/// called.
pub(crate) fn membarrier() -> io::Result<()> {
    const GLOBAL: libc::c_int = 1; // MEMBARRIER_CMD_GLOBAL
    // SAFETY: takes numbers only.
    let rc = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
