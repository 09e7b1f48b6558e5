//! The back end `epoll`, level-triggered: one system call for each change of interest, and one for each wait.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::{Backend, or_interrupted, timespec};
use crate::table::{Interest, Table};

/// Number of ready sockets that one call returns at most.
const BATCH: usize = 512;

pub(super) struct Epoll {
    instance: OwnedFd,
    events: Vec<Event>,
}

impl Epoll {
    pub(super) fn open() -> io::Result<Epoll> {
        Ok(Epoll { instance: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(BATCH) })
    }
}

impl Backend for Epoll {
    fn limit(&self) -> usize {
        usize::MAX
    }

    fn add(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.instance, fd, data(fd), EventFlags::IN)?)
    }

    fn change(&mut self, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        let flags = match interest {
            Interest::Nothing => EventFlags::empty(),
            Interest::Read => EventFlags::IN,
            Interest::Write => EventFlags::OUT,
        };
        Ok(epoll::modify(&self.instance, fd, data(fd), flags)?)
    }

    // Closing the last descriptor of a socket removes the socket from the instance, so no call is needed.
    fn remove(&mut self, _fd: BorrowedFd<'_>) {}

    fn wait(&mut self, _table: &Table, longest: Duration, ready: &mut Vec<RawFd>) -> io::Result<()> {
        self.events.clear();
        or_interrupted(epoll::wait(&self.instance, spare_capacity(&mut self.events), Some(&timespec(longest))))?;
        ready.extend(self.events.iter().map(|event| event.data.u64() as RawFd));
        Ok(())
    }
}

fn data(fd: BorrowedFd<'_>) -> EventData {
    EventData::new_u64(fd.as_raw_fd() as u64)
}
