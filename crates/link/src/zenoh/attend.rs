//! Runs work in the network's own thread, so that sending from there needs no other thread to be woken.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
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

/// A value that lends its descriptor, as Tokio wants it.
struct Watched<T>(T);

impl<T: AsFd> AsRawFd for Watched<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Calls `turn` in the single thread of Zenoh (see [`crate::one_receive_thread`]) each time that something arrives at
/// `fd`, also if what arrived before was not read. The argument says whether the other end is closed; that turn is the
/// last one. Between two turns the thread sends waiting frames and receives others. A turn has to be short and must not
/// block. `None`: Zenoh has several threads.
///
/// `fd` has to lend the same descriptor always. Zenoh's thread drops it, some time after [`Attending`] was dropped.
///
/// `failed` is called if a turn panics; after that `turn` is not called again.
///
/// No arrival is lost:
/// * The descriptor is registered for edges. The kernel reports what is there at the registration, and each arrival.
/// * The readiness is cleared before the turn, so the turn finds everything that was reported. A later report makes the
///   descriptor ready again: clearing has no effect on reports that are newer than the one it belongs to.
///
/// # Errors
/// The kernel does not watch the descriptor. `AlreadyExists`: an earlier [`Attending`] for the same descriptor was
/// dropped, but Zenoh's thread has not ended its work yet.
pub fn attend(
    fd: impl AsFd + Send + Sync + 'static,
    mut turn: impl FnMut(bool) + Send + 'static,
    failed: impl Fn(&'static str, String) + Send + 'static,
) -> io::Result<Option<Attending>> {
    if !threads::single_receive_thread() {
        return Ok(None);
    }
    let _runtime = ZRuntime::RX.enter();
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types that lie about their descriptor; what `AsFd` lends is open"
    )]
    let fd = AsyncFd::with_interest(Watched(fd), Interest::READABLE)?;
    let work = async move {
        while let Ok(mut ready) = fd.readable().await {
            let is_closed = ready.ready().is_read_closed();
            ready.clear_ready();
            let (mut is_done, failed) = (false, |thread, message| failed(thread, message));
            threads::contain("that attends", failed, || {
                turn(is_closed);
                is_done = true;
            });
            // The end of the other side cannot be cleared: without this, it would cause turns for ever.
            if is_closed || !is_done {
                return;
            }
        }
    };
    Ok(Some(Attending(ZRuntime::RX.spawn(work))))
}
