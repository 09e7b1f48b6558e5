//! The I/O event delivery module of ECalls (003 §5.2): the kernel marks ready sockets in a bit map that it shares
//! with this process. A socket is bound once, and finding ready sockets needs no system call. This back end sleeps
//! in the kernel only if no socket is ready, or if sockets wait for space to write.
//!
//! Sockets that wait for space to write are rare (an answer larger than the send buffer), and the module only
//! marks readable sockets. This back end calls `poll` for such sockets, together with the module's wake
//! descriptor.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use qfabric_client::ClientError;
use qfabric_client::ecalls::Sockets;
use qfabric_types::memory::SOCKETS;
use rustix::event::{PollFd, PollFlags};

use super::{Backend, or_interrupted, timespec};
use crate::table::{Interest, Table};

/// The module, and the sockets that wait for space to write.
#[derive(Debug)]
pub(super) struct Module {
    sockets: Sockets,
    highest: u32,
    writers: BTreeSet<RawFd>,
}

impl Module {
    /// Creates the back end from the module of a connection to the daemon.
    pub(super) fn new(sockets: Sockets) -> Module {
        Module { sockets, highest: 0, writers: BTreeSet::new() }
    }

    fn take(&self, ready: &mut Vec<RawFd>) -> usize {
        self.sockets.for_each_active(self.highest, |fd| ready.push(fd as RawFd))
    }

    /// Appends the sockets that became writable. Sleeps at most `longest` for one of them, or for a readable
    /// socket.
    fn poll_writers(&self, table: &Table, longest: Duration, ready: &mut Vec<RawFd>) -> io::Result<()> {
        let writers = self.writers.iter().filter_map(|fd| table.get(*fd));
        let mut polled: Vec<PollFd> = writers.map(|entry| PollFd::new(entry, PollFlags::OUT)).collect();
        let wake = self.sockets.wake_fd();
        polled.push(PollFd::new(&wake, PollFlags::IN));
        or_interrupted(rustix::event::poll(&mut polled, Some(&timespec(longest))))?;
        polled.pop();
        ready.extend(polled.iter().filter(|p| !p.revents().is_empty()).map(|p| p.as_fd().as_raw_fd()));
        Ok(())
    }
}

impl Backend for Module {
    fn limit(&self) -> usize {
        SOCKETS
    }

    fn add(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.add(fd).map_err(other)?;
        self.highest = self.highest.max(fd.as_raw_fd() as u32);
        Ok(())
    }

    fn change(&mut self, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        self.writers.remove(&fd.as_raw_fd());
        match interest {
            Interest::Nothing => {}
            Interest::Write => drop(self.writers.insert(fd.as_raw_fd())),
            // The module marked bytes that arrived meanwhile, and the mark was taken. Marks the socket again.
            Interest::Read => self.sockets.page().keep(fd.as_raw_fd() as u32),
        }
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>) {
        self.writers.remove(&fd.as_raw_fd());
        self.sockets.remove(fd);
    }

    fn wait(&mut self, table: &Table, longest: Duration, ready: &mut Vec<RawFd>) -> io::Result<()> {
        let found = self.take(ready);
        let longest = if found > 0 { Duration::ZERO } else { longest };
        if !self.writers.is_empty() {
            let longest = if self.sockets.page().may_sleep(self.highest) { longest } else { Duration::ZERO };
            self.poll_writers(table, longest, ready)?;
        }
        if !longest.is_zero() {
            let longest = if self.writers.is_empty() { longest } else { Duration::ZERO };
            self.sockets.wait(self.highest, longest).map_err(other)?;
            self.take(ready);
        }
        Ok(())
    }
}

fn other(error: ClientError) -> io::Error {
    io::Error::other(error)
}
