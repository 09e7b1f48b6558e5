//! The I/O event delivery module (003 §5.2): reports ready sockets without a system call.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use qfabric_shm::{Binder, SharedSockets, Wake};
use qfabric_types::ecalls_wire::{DescriptorSet, FromClient};
use qfabric_types::memory::SocketPage;

use super::connection::Inner;
use crate::error::ClientError;

/// `socket_interest` and `socket_ready` in memory shared with the kernel, a replacement for `select()`.
/// [`SocketPage`] defines the bits.
#[derive(Debug)]
pub struct Sockets {
    inner: Arc<Inner>,
    page: SharedSockets,
    wake: Wake,
    /// None: this host does not allow BPF for users, so the daemon binds sockets.
    binder: Option<Binder>,
}

fn broken(error: impl ToString) -> ClientError {
    ClientError::Memory { what: "the page of the I/O module", why: error.to_string() }
}

impl Sockets {
    pub(super) fn open(inner: Arc<Inner>) -> Result<Sockets, ClientError> {
        let mut came = inner.lease.take(&FromClient::TakeSockets, None)?;
        let parts = (came.pick(DescriptorSet::SOCKETS), came.pick(DescriptorSet::WAKE), came.pick(DescriptorSet::BIND));
        let (Some(page), Some(wake), Some(binder)) = parts else {
            return Err(broken("the daemon did not send its descriptor"));
        };
        let page = SharedSockets::map(&page).map_err(broken)?;
        Ok(Sockets { inner, page, wake: Wake::new(wake).map_err(broken)?, binder: Binder::of(binder).ok() })
    }

    /// The shared page.
    pub fn page(&self) -> &SocketPage {
        &self.page
    }

    /// Watches `socket`. Data that arrived before is not reported, so the socket is marked active once and the caller
    /// reads it. One system call; without CAP_BPF, one request to the daemon.
    pub fn add(&self, socket: impl AsFd) -> Result<(), ClientError> {
        self.inner.lease.own()?;
        let fd = socket.as_fd();
        let number = fd.as_raw_fd() as u32;
        if !self.page.set_interest(number, true) {
            let most = qfabric_types::memory::SOCKETS;
            let why = format!("the descriptor is {number}, but the module serves 0 to {}", most - 1);
            return Err(ClientError::invalid(why, "use a lower descriptor"));
        }
        let is_bound = self.binder.as_ref().is_some_and(|binder| binder.bind(fd).is_ok());
        if !is_bound {
            let bound = self.inner.lease.take(&FromClient::Bind(number), Some(fd));
            bound.inspect_err(|_| self.forget(number))?;
        }
        self.page.keep(number);
        Ok(())
    }

    /// Like [`Sockets::remove`], by the number of the descriptor.
    pub fn forget(&self, number: u32) {
        // In a child of a fork the page belongs to the parent.
        if self.inner.lease.own().is_ok() {
            self.page.set_interest(number, false);
        }
    }

    /// Ends the watch of `socket`. Call it before the socket is closed. No system call.
    pub fn remove(&self, socket: impl AsFd) {
        self.forget(socket.as_fd().as_raw_fd() as u32);
    }

    /// Calls `each` for every active socket up to descriptor `highest` and clears its bit; returns their number. No
    /// system call.
    pub fn for_each_active(&self, highest: u32, each: impl FnMut(u32)) -> usize {
        if self.inner.lease.own().is_err() {
            return 0; // a child of a fork would clear its parent's bits
        }
        self.page.for_each_active(highest, each)
    }

    /// Sleeps until a socket up to descriptor `highest` is active (true) or `patience` is over (false); returns at
    /// once if a socket is active.
    pub fn wait(&self, highest: u32, patience: Duration) -> Result<bool, ClientError> {
        self.inner.lease.own()?;
        if !self.page.may_sleep(highest) {
            return Ok(true);
        }
        self.wake.wait(patience).map_err(broken)?;
        Ok(self.page.any_active(highest))
    }

    /// Descriptor for event loops; see [`super::Subscription::wake_fd`].
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
