//! The I/O event delivery module (003 §5.2): which sockets are ready, without a system call.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use qfabric_shm::{Binder, SharedSockets, Wake};
use qfabric_types::ecalls_wire::{FromClient, Given};
use qfabric_types::memory::SocketPage;

use super::connection::Inner;
use crate::error::ClientError;

/// `socket_interest` and `socket_ready`, shared with the kernel, in place of `select()`. See
/// [`SocketPage`] for what a bit means.
#[derive(Debug)]
pub struct Sockets {
    inner: Arc<Inner>,
    page: SharedSockets,
    wake: Wake,
    /// None: this host keeps BPF from users, and the daemon is asked to bind.
    binder: Option<Binder>,
}

fn broken(error: impl ToString) -> ClientError {
    ClientError::Memory { what: "the page of the I/O module", why: error.to_string() }
}

impl Sockets {
    pub(super) fn open(inner: Arc<Inner>) -> Result<Sockets, ClientError> {
        let mut came = inner.lease.take(&FromClient::TakeSockets, None)?;
        let parts = (came.pick(Given::SOCKETS), came.pick(Given::WAKE), came.pick(Given::BIND));
        let (Some(page), Some(wake), Some(binder)) = parts else {
            return Err(broken("the daemon did not hand it out"));
        };
        let page = SharedSockets::map(&page).map_err(broken)?;
        Ok(Sockets { inner, page, wake: Wake::new(wake).map_err(broken)?, binder: Binder::of(binder).ok() })
    }

    /// The page itself.
    pub fn page(&self) -> &SocketPage {
        &self.page
    }

    /// Events of `socket` are wanted from now on. What arrived before is not told: it is marked active, so that
    /// it is looked at once. One system call; for clients without CAP_BPF a question to the daemon.
    pub fn add(&self, socket: impl AsFd) -> Result<(), ClientError> {
        self.inner.lease.own()?;
        let fd = socket.as_fd();
        let number = fd.as_raw_fd() as u32;
        if !self.page.set_interest(number, true) {
            let most = qfabric_types::memory::SOCKETS;
            let why = format!("descriptor {number}; the module serves 0 to {}, so lower the number", most - 1);
            return Err(ClientError::Value(why));
        }
        let is_bound = self.binder.as_ref().is_some_and(|binder| binder.bind(fd).is_ok());
        if !is_bound {
            let bound = self.inner.lease.take(&FromClient::Bind(number), Some(fd));
            bound.inspect_err(|_| self.forget(number))?;
        }
        self.page.keep(number);
        Ok(())
    }

    /// As [`Sockets::remove`], by the descriptor's number.
    pub fn forget(&self, number: u32) {
        // In a child of a fork the page is the parent's.
        if self.inner.lease.own().is_ok() {
            self.page.set_interest(number, false);
        }
    }

    /// Events of `socket` are not wanted any more. No system call. Call it before the socket is closed.
    pub fn remove(&self, socket: impl AsFd) {
        self.forget(socket.as_fd().as_raw_fd() as u32);
    }

    /// Calls `each` with every active socket up to descriptor `highest`, taking its bit; their number. No system
    /// call.
    pub fn for_each_active(&self, highest: u32, each: impl FnMut(u32)) -> usize {
        if self.inner.lease.own().is_err() {
            return 0; // a child of a fork would take its parent's
        }
        self.page.for_each_active(highest, each)
    }

    /// Sleeps until a socket up to descriptor `highest` is active, or `patience` is over; at once if one is.
    pub fn wait(&self, highest: u32, patience: Duration) -> Result<bool, ClientError> {
        self.inner.lease.own()?;
        if !self.page.may_sleep(highest) {
            return Ok(true);
        }
        self.wake.wait(patience).map_err(broken)?;
        Ok(self.page.any_active(highest))
    }

    /// For event loops of one's own: see [`super::Subscription::wake_fd`].
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
