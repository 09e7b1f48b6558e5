//! Joining the daemon: the client requests a contract over HTTP, then receives the job ring over the socket beside
//! it. That second connection is the lease: when it closes, the daemon ends the contract. A crash needs no clean-up.

use std::io;
use std::os::fd::OwnedFd;

use qfabric_shm::{Process, SharedRing, fds};
use qfabric_types::AppId;
use qfabric_types::api::{Application, ApplicationRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::client::Client;
use crate::error::ClientError;

/// State of an application under contract.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: AppId,
    /// Process that holds the lease. A child of a fork has copies of the descriptors, but no lease.
    pub(crate) process: Process,
    pub(crate) ring: SharedRing,
    /// An eventfd, non-blocking.
    pub(crate) wake: OwnedFd,
    /// None if the ring has no daemon (benchmarks, tests).
    connection: Option<OwnedFd>,
}

/// Requests the contract and fetches the ring. If the ring cannot be fetched, the contract is ended again.
pub(crate) fn join(client: &Client, request: &ApplicationRequest) -> Result<(Lease, Application), ClientError> {
    leased(client, client.admit(request)?)
}

/// Fetches the ring of an admitted application.
pub(crate) fn leased(client: &Client, application: Application) -> Result<(Lease, Application), ClientError> {
    match fetch(client, application.id) {
        Ok(lease) => Ok((lease, application)),
        Err(why) => {
            let _ = client.release(application.id); // report the first error
            let id = application.id.0;
            Err(ClientError::Ring { id, path: client.ring_socket(), why: why.to_string() })
        }
    }
}

fn fetch(client: &Client, id: AppId) -> io::Result<Lease> {
    let connection = fds::connect(&client.ring_socket(), client.patience())?;
    fds::send(&connection, id.to_string().as_bytes(), &[])?;
    let mut buffer = [0; 512];
    let mut answer = fds::recv(&connection, &mut buffer).map_err(patience_named)?;
    let text = &buffer[..answer.length];
    let (Some(wake), Some(memory), b"ok") = (answer.fds.pop(), answer.fds.pop(), text) else {
        return Err(io::Error::other(format!(
            "the daemon answered {:?} instead of \"ok\" with two descriptors",
            String::from_utf8_lossy(text)
        )));
    };
    Lease::new(id, SharedRing::map(memory)?, wake, Some(connection))
}

fn patience_named(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "the daemon did not answer in time"),
        _ => error,
    }
}

impl Lease {
    /// Sets `wake` to non-blocking, so that no write to it blocks.
    pub(crate) fn new(id: AppId, ring: SharedRing, wake: OwnedFd, connection: Option<OwnedFd>) -> io::Result<Lease> {
        fcntl_setfl(&wake, fcntl_getfl(&wake)? | OFlags::NONBLOCK)?;
        Ok(Lease { id, process: Process::current()?, ring, wake, connection })
    }

    /// True while the daemon holds its end of the connection. One system call that does not block.
    pub(crate) fn holds(&self) -> bool {
        let Some(connection) = &self.connection else { return true };
        let mut asked = [PollFd::new(connection, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let broken = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut asked, Some(&now)).is_err() || !asked[0].revents().intersects(broken)
    }
}
