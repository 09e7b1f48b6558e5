//! Work that is done in the network's own thread: whoever has something to send there needs no other thread to be woken
//! for it.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::{JoinHandle, yield_now};
use zenoh_runtime::ZRuntime;

use crate::threads;

/// Work in the network's thread, until it is dropped. A turn under way is not waited for.
#[derive(Debug)]
pub struct Attending(JoinHandle<()>);

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Calls `turn` in the single thread of Zenoh (see [`crate::one_receive_thread`]) whenever `fd` becomes readable, and again
/// as long as it says that there is more; between two turns what was sent goes out, and what has come is taken. A turn is short
/// and does not block. None: Zenoh has several threads.
///
/// `failed` is told where it panics; it is not called again then.
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
            // Before the turn: what becomes readable in it makes it readable again.
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
