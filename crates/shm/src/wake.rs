//! What a reader of shared memory sleeps on: an eventfd (written by the daemon) or the ring buffer of one page
//! that a handler in the kernel makes readable.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use qfabric_types::memory::acknowledge;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::ProtFlags;

use crate::mapping::{self, Mapping};

/// A descriptor that becomes readable when there is something to read elsewhere.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
    /// Positions of consumer and producer, where it is a ring buffer.
    ring: Option<(Mapping, Mapping)>,
}

impl Wake {
    /// Of a descriptor that came through a socket; never blocks on it.
    pub fn new(fd: OwnedFd) -> io::Result<Wake> {
        let page = rustix::param::page_size();
        // Of a file, which is neither: it may not shrink under the mapping.
        mapping::check(&fd, 2 * page)?;
        // An eventfd cannot be mapped.
        let consumer = Mapping::new(&fd, page, 0, ProtFlags::READ | ProtFlags::WRITE).ok();
        let producer = consumer.is_some().then(|| Mapping::new(&fd, page, page as u64, ProtFlags::READ));
        let ring = consumer.zip(producer.transpose()?);
        if ring.is_none() {
            let flags = rustix::fs::fcntl_getfl(&fd)?;
            rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        }
        Ok(Wake { fd, ring })
    }

    /// Waits until it is readable, or `patience` is over; then makes it unreadable again. Returns early at a
    /// signal, as if something had come.
    pub fn wait(&self, patience: Duration) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.acknowledge();
        Ok(true)
    }

    /// Makes it unreadable again, for those who poll it themselves.
    pub fn acknowledge(&self) {
        match &self.ring {
            Some((consumer, producer)) => acknowledge(consumer.first_word(), producer.first_word()),
            // Not readable any more: somebody was faster.
            None => drop(rustix::io::read(&self.fd, &mut [0; 8])),
        }
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Mapping {
    #[allow(unsafe_code)] // a word of a mapping
    fn first_word(&self) -> &AtomicU64 {
        // SAFETY: at least a page is mapped until drop, and an atomic word may be written by the other side.
        unsafe { self.view::<AtomicU64>().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    #[test]
    fn an_eventfd_wakes_once_per_writing() {
        let ours = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let wake = Wake::new(ours.try_clone().unwrap()).unwrap();
        assert!(!wake.wait(Duration::ZERO).unwrap());
        rustix::io::write(&ours, &1u64.to_ne_bytes()).unwrap();
        assert!(wake.wait(Duration::from_secs(5)).unwrap());
        assert!(!wake.wait(Duration::ZERO).unwrap());
        wake.acknowledge(); // does not block
    }

    #[test]
    fn a_file_that_could_shrink_wakes_nobody() {
        let file = memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 1 << 20).unwrap();
        assert!(Wake::new(file).unwrap_err().to_string().contains("could shrink"));
    }
}
