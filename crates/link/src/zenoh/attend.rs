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
/// while `turn` returns that there is more. `turn` has to find everything that was there before it, or return that there is
/// more: what was readable before wakes nobody again. Between two turns the thread sends waiting frames and receives
/// others. A turn has to be short and must not block. `None`: Zenoh has several threads.
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
            loop {
                let (mut more, failed) = (None, |thread, message| failed(thread, message));
                threads::contain("that attends", failed, || more = Some(turn()));
                match more {
                    None => return,
                    Some(false) => break,
                    Some(true) => yield_now().await,
                }
            }
        }
    };
    Ok(Some(Attending(ZRuntime::RX.spawn(work))))
}
