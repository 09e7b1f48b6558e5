//! Four ways to find ready sockets, behind one trait.

mod ecalls;
mod epoll;
mod poll;
mod select;

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use clap::ValueEnum;
use qfabric_client::ClientError;
use qfabric_client::ecalls::Ecalls;
use rustix::event::Timespec;

use crate::table::{Interest, Table};

/// Finds ready sockets. The server keeps the sockets itself, and reports each change to the back end.
pub trait Backend {
    /// Descriptors must be below this number.
    fn limit(&self) -> usize;

    /// Adds a socket with an interest in reading.
    fn add(&mut self, _fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Changes the interest of a socket.
    fn change(&mut self, _fd: BorrowedFd<'_>, _interest: Interest) -> io::Result<()> {
        Ok(())
    }

    /// Removes a socket that is about to be closed.
    fn remove(&mut self, _fd: BorrowedFd<'_>) {}

    /// Waits until a socket of the table is ready, at most for `longest`, and appends the ready ones. A signal
    /// ends the wait early. The result may contain a socket that is not ready.
    fn wait(&mut self, table: &Table, longest: Duration, ready: &mut Vec<RawFd>) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `select()`: each call passes and scans all descriptors, at most 1024
    Select,
    /// `poll()`: like select, without the limit
    Poll,
    /// `epoll`: the kernel stores the interests and returns only ready sockets
    Epoll,
    /// The I/O module of ECalls: ready sockets are bits in memory shared with the kernel; needs the daemon
    Ecalls,
}

impl Kind {
    /// Opens the back end. `ecalls` connects to the daemon; it is called only if the back end needs the daemon.
    pub fn open(self, ecalls: impl FnOnce() -> Result<Ecalls, ClientError>) -> io::Result<Box<dyn Backend>> {
        Ok(match self {
            Kind::Select => Box::new(select::Select),
            Kind::Poll => Box::new(poll::Poll),
            Kind::Epoll => Box::new(epoll::Epoll::open()?),
            Kind::Ecalls => {
                Box::new(ecalls::Module::new(ecalls().and_then(|e| e.sockets()).map_err(io::Error::other)?))
            }
        })
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

/// Treats an interrupted wait as a wait that found no ready socket.
fn or_interrupted(result: rustix::io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(rustix::io::Errno::INTR) => Ok(0),
        other => Ok(other?),
    }
}
