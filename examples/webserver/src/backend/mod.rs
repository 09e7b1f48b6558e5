//! Four ways to learn which sockets are ready, behind one trait.

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

/// Says which sockets are ready. The server tells it of each change and keeps the sockets itself.
pub trait Backend {
    /// Descriptors must be below this.
    fn limit(&self) -> usize;

    /// A socket is new; it is interested in reading.
    fn add(&mut self, _fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// A socket waits for something else from now on.
    fn change(&mut self, _fd: BorrowedFd<'_>, _interest: Interest) -> io::Result<()> {
        Ok(())
    }

    /// A socket is about to be closed.
    fn remove(&mut self, _fd: BorrowedFd<'_>) {}

    /// Waits until a socket of the table is ready, at most that long, and appends the ready ones. A signal ends
    /// the wait early; a socket that is not ready after all may be among them.
    fn wait(&mut self, table: &Table, longest: Duration, ready: &mut Vec<RawFd>) -> io::Result<()>;
}

/// The back ends by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `select()`: all descriptors are told and scanned at each call, at most 1024
    Select,
    /// `poll()`: the same without the limit
    Poll,
    /// `epoll`: the kernel keeps the interest, and gives only what is ready
    Epoll,
    /// The I/O module of ECalls: ready sockets are bits in memory shared with the kernel; needs the daemon
    Ecalls,
}

impl Kind {
    /// Opens it; `ecalls` is connected to the daemon only where it is needed.
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

/// An interrupted wait is a wait that found nothing.
fn or_interrupted(result: rustix::io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(rustix::io::Errno::INTR) => Ok(0),
        other => Ok(other?),
    }
}
