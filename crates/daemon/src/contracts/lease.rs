//! Leases: a contract, or the answers for an application, that end with a process.
//!
//! The process is watched through a pidfd, so that neither a reused process id nor a kill -9 is missed.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use qfabric_types::api::{ApplicationScope, Problem};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

use super::{Call, Contracts};
use crate::api::answers::aside;
use crate::auth::{self, Peer};
use crate::{ending, problem};

/// Time until the end of a process is reported again to a thread with too many calls.
const AGAIN: Duration = Duration::from_millis(50);

/// The watch over one process. When it is dropped, the process is watched no more.
pub(super) struct Lease {
    /// Its number, which [`Call::HolderEnded`] names.
    pub number: u64,
    pub pid: i32,
    watching: AbortHandle,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Contracts {
    /// Watches a process of the peer. The API's runtime has one thread, so the report of its end does not overtake the call
    /// that brings the lease, if no other task runs in between.
    ///
    /// # Errors
    /// It has ended, or belongs to another user.
    pub(super) async fn lease(self: &Arc<Self>, peer: Peer, pid: i32) -> Result<Lease, Problem> {
        let target = aside(move || auth::target(peer, pid, ApplicationScope::Program)).await?;
        let number = self.leases.fetch_add(1, Ordering::Relaxed);
        let failed = |error: std::io::Error| problem::internal(format!("cannot watch process {pid}: {error}"));
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that lie about their descriptor; OwnedFd does not"
        )]
        let process = AsyncFd::with_interest(OwnedFd::from(target.watch), Interest::READABLE).map_err(failed)?;
        let contracts = self.clone();
        let watching = ending::spawn("watch of a process", async move { contracts.report_end(process, number).await });
        Ok(Lease { number, pid, watching: watching.abort_handle() })
    }

    async fn report_end(&self, process: AsyncFd<OwnedFd>, number: u64) {
        // An error means that the process is watched no more: what depends on it must not stay.
        let _ = process.readable().await;
        while let Err(std::sync::mpsc::TrySendError::Full(_)) = self.calls.try_send(Call::HolderEnded(number)) {
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// A lease on a process that has not ended, for tests.
#[cfg(test)]
pub(super) fn unwatched(number: u64) -> Lease {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    Lease { number, pid: 1, watching: runtime.spawn(async {}).abort_handle() }
}
