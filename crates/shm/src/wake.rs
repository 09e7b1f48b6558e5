//! The descriptor on which a reader of shared memory sleeps: an eventfd that the daemon writes, or a BPF ring
//! buffer of one page that a handler in the kernel makes readable.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use qfabric_types::memory::acknowledge;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::ProtFlags;

use crate::mapping::{self, Mapping};

/// A descriptor that becomes readable when the shared memory beside it has something to read.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
    /// The position words of consumer and producer, if the descriptor is a ring buffer.
    ring: Option<(Mapping, Mapping)>,
}

impl Wake {
    /// Takes a descriptor that came through a socket. Reading it never blocks.
    pub fn new(fd: OwnedFd) -> io::Result<Wake> {
        let page = rustix::param::page_size();
        // The descriptor of a regular file is neither; the file may not shrink under the mapping.
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

    /// Waits until the descriptor is readable or `patience` is over; then makes it unreadable again. Returns
    /// `false` after `patience`. A signal ends the wait early with `true`.
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

    /// Makes the descriptor unreadable again, for callers that poll it themselves.
    pub fn acknowledge(&self) {
        match &self.ring {
            Some((consumer, producer)) => acknowledge(consumer.first_word(), producer.first_word()),
            // Not readable any more: another thread has read it first.
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
        // SAFETY: at least one page is mapped until drop, and the other side may write an atomic word.
        unsafe { self.view::<AtomicU64>().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    #[test]
    fn an_eventfd_wakes_once_per_write() {
        let ours = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let wake = Wake::new(ours.try_clone().unwrap()).unwrap();
        assert!(!wake.wait(Duration::ZERO).unwrap());
        rustix::io::write(&ours, &1u64.to_ne_bytes()).unwrap();
        assert!(wake.wait(Duration::from_secs(5)).unwrap());
        assert!(!wake.wait(Duration::ZERO).unwrap());
        wake.acknowledge(); // does not block
    }

    #[test]
    fn a_file_that_could_shrink_is_refused_as_a_wake_descriptor() {
        let file = memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 1 << 20).unwrap();
        assert!(Wake::new(file).unwrap_err().to_string().contains("could shrink"));
    }
}
