//! The records of one CPU, in memory shared with the kernel. The kernel writes records and moves `data_head`; this side
//! reads them and moves `data_tail`. Positions only grow and are taken modulo the size, which is a power of two.
#![allow(unsafe_code)] // memory shared with the kernel

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags};

use super::record::{HEADER, size_in};

/// Longest record that is read; longer records are skipped. The requested kinds have at most 64 bytes.
pub(super) const LONGEST: usize = 256;

#[derive(Debug)]
pub(super) struct Ring {
    event: OwnedFd,
    start: NonNull<u8>,
    mapped: usize,
    page: usize,
    size: u64,
    tail: u64,
    head: u64,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps `pages` pages of records of an event. `pages` is a power of two.
    pub(super) fn map(event: OwnedFd, pages: usize) -> io::Result<Ring> {
        debug_assert!(pages.is_power_of_two());
        let page = rustix::param::page_size();
        let mapped = (pages + 1) * page;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs no memory in use.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), mapped, protection, MapFlags::SHARED, &event, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { event, start, mapped, page, size: (pages * page) as u64, tail: 0, head: 0 })
    }

    pub(super) fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Reads the position up to which the kernel has written.
    pub(super) fn read_head(&mut self) {
        self.head = self.position(offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        if self.head.wrapping_sub(self.tail) > self.size {
            self.tail = self.head; // impossible: the kernel never overwrites unread records
        }
    }

    /// Copies the oldest unread record before the position of the last [`Ring::read_head`] into `room`. Empty if there
    /// is none.
    pub(super) fn front<'a>(&mut self, room: &'a mut [u8; LONGEST]) -> &'a [u8] {
        while self.tail != self.head {
            let mut header = [0; HEADER];
            self.copy(self.tail, &mut header);
            match size_in(header) {
                Some(size) if size <= LONGEST && size as u64 <= self.head - self.tail => {
                    self.copy(self.tail, &mut room[..size]);
                    return &room[..size];
                }
                Some(size) if size as u64 <= self.head - self.tail => self.tail += size as u64,
                _ => self.tail = self.head, // the boundaries of the following records are unknown
            }
        }
        &[]
    }

    /// Skips a record of `size` bytes.
    pub(super) fn step(&mut self, size: usize) {
        self.tail += size as u64;
    }

    /// Gives the space of the read records back to the kernel.
    pub(super) fn release(&mut self) {
        self.position(offset_of!(perf_event_mmap_page, data_tail)).store(self.tail, Ordering::Release);
    }

    fn copy(&self, from: u64, to: &mut [u8]) {
        let at = (from % self.size) as usize;
        let first = to.len().min(self.size as usize - at);
        // SAFETY: `at + first` and `to.len() - first` lie within the data pages, which follow the first page; the
        // kernel does not write between tail and head, where callers stay, until `release`.
        unsafe {
            let data = self.start.as_ptr().add(self.page);
            std::ptr::copy_nonoverlapping(data.add(at), to.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, to.as_mut_ptr().add(first), to.len() - first);
        }
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page of the mapping is a perf_event_mmap_page; both positions in it are aligned
        // u64 that the kernel and this side access atomically, for as long as the mapping lives.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this value made the mapping and nothing borrowed from it outlives it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}
