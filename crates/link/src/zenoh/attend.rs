//! Runs work in the network's own thread, so that sending from there needs no other thread to be woken.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::{JoinHandle, yield_now};
use zenoh_runtime::ZRuntime;

use crate::threads;

/// Ends the work when dropped; does not wait for a turn that is running.
#[derive(Debug)]
pub struct Attending(JoinHandle<()>);

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Calls `turn` in the single thread of Zenoh (see [`crate::one_receive_thread`]) whenever `fd` becomes readable, and again
/// while `turn` returns that there is more. Between two turns the thread sends waiting frames and receives others. A turn has
/// to be short and must not block. `None`: Zenoh has several threads.
///
/// `failed` is called if a turn panics; after that `turn` is not called again.
pub fn attend(
    fd: OwnedFd,
    mut turn: impl FnMut() -> bool + Send + 'static,
    failed: impl Fn(&'static str, String) + Send + 'static,
) -> io::Result<Option<Attending>> {
    if !threads::single_receive_thread() {
        return Ok(None);
    }
    let _runtime = ZRuntime::RX.enter();
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types that lie about their descriptor; OwnedFd does not"
    )]
    let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
    let work = async move {
        while let Ok(mut ready) = fd.readable().await {
            // Clear readiness before the turn, so that data which arrives during the turn makes `fd` readable again.
            ready.clear_ready();
            let mut more = true;
            while std::mem::take(&mut more) {
                let mut has_failed = false;
                threads::contain(
                    "that attends",
                    |thread, message| {
                        has_failed = true;
                        failed(thread, message);
                    },
                    || more = turn(),
                );
                if has_failed {
                    return;
                }
                yield_now().await;
            }
        }
    };
    Ok(Some(Attending(ZRuntime::RX.spawn(work))))
}
