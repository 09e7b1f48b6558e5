//! `ring.sock`: a client sends the number of its application and receives the memory of the ring and an eventfd.
//!
//! The open connection is the lease. The control thread keeps the descriptor and watches for its end. Only the
//! handshake happens here, as one short task per connection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use qfabric_shm::{SharedRing, fds};
use qfabric_types::AppId;
use qfabric_types::api::Problem;
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::accept::{Place, accept_each};
use crate::auth::Peer;
use crate::closer::{Closer, Foreign, LastClose};
use crate::control::{Command, NewRing, Requests, wake_descriptor};
use crate::problem;

/// Longest message read: a decimal number, with some room, so that an invalid message is read and answered, too.
const MAX_REQUEST_BYTES: usize = 64;
/// Longest answer; the client's buffer is larger.
const MAX_ANSWER_BYTES: usize = 500;

/// Serves until dropped. Tokio supports stream sockets only. For `SOCK_SEQPACKET`, accepting and waiting for a
/// message are the same calls; messages go through [`fds`].
pub(crate) async fn serve_rings(
    listener: OwnedFd,
    requests: Requests,
    places: usize,
    timeout: Duration,
) -> io::Result<()> {
    // The refusal is the first message, so the socket has room for it.
    let refuse = |socket: &UnixStream, problem| _ = fds::send(socket, refusal(&problem).as_bytes(), &[]);
    let closer = Closer::default();
    let serve = |socket, peer, place| serve_one(socket, peer, requests.clone(), closer.clone(), place, timeout);
    accept_each(listener, "ring.sock", places, serve, refuse).await
}

async fn serve_one(
    socket: UnixStream,
    peer: Peer,
    requests: Requests,
    closer: Closer,
    place: Place,
    timeout: Duration,
) {
    let last = match LastClose::of(&socket, place, peer.owner.uid, &closer) {
        Ok(last) => last,
        Err(error) => return tracing::debug!(%error, pid = peer.pid, "a ring connection is closed"),
    };
    match tokio::time::timeout(timeout, hand_out(socket, peer, requests, closer)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, pid = peer.pid, "ring connection ended with an error"),
        Err(_) => tracing::debug!(pid = peer.pid, "ring connection: no request came in time"),
    }
    last.end();
}

async fn hand_out(socket: UnixStream, peer: Peer, requests: Requests, closer: Closer) -> io::Result<()> {
    let mut buffer = [0; MAX_REQUEST_BYTES];
    let asked = socket.async_io(Interest::READABLE, || fds::recv_all_now(&socket, &mut buffer)).await;
    let app = asked.ok().and_then(|got| {
        if !got.fds.is_empty() {
            closer.close(peer.owner.uid, got.fds);
        }
        number(&buffer[..if got.is_cut { 0 } else { got.length }])
    });
    let socket = OwnedFd::from(socket.into_std()?);
    let answer = match app {
        Some(app) => lease(&socket, peer, app, &requests, &closer).await,
        None => Err(problem::invalid("the first message must be the number of an application".to_owned())),
    };
    match answer {
        Ok((memory, wake)) => send_ring(&socket, &memory, &wake),
        Err(problem) => fds::send(&socket, refusal(&problem).as_bytes(), &[]),
    }
}

fn number(bytes: &[u8]) -> Option<AppId> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok().map(AppId)
}

/// Registers a new ring with the control thread. Returns the descriptors for the client.
async fn lease(
    socket: &OwnedFd,
    peer: Peer,
    app: AppId,
    requests: &Requests,
    closer: &Closer,
) -> Result<(OwnedFd, OwnedFd), Problem> {
    let failed = |error: io::Error| problem::internal(format!("cannot create a ring: {error}"));
    let (memory, file) = SharedRing::create().map_err(failed)?;
    let wake = wake_descriptor().map_err(failed)?;
    let lease = Foreign::new(socket.try_clone().map_err(failed)?, peer.owner.uid, closer);
    let ring = NewRing { memory, wake: wake.try_clone().map_err(failed)?, lease };
    requests.ask(|reply| Command::TakeRing { peer, app, ring, reply }).await?;
    Ok((file, wake))
}

/// If the client does not receive the descriptors, the lease ends, as if the client had left.
fn send_ring(socket: &OwnedFd, memory: &OwnedFd, wake: &OwnedFd) -> io::Result<()> {
    let sent = fds::send(socket, b"ok", &[memory.as_fd(), wake.as_fd()]);
    if sent.is_err() {
        // Fails only if the connection has ended already.
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    }
    sent
}

fn refusal(problem: &Problem) -> String {
    let text = format!("{}: {problem}", problem.code);
    let end = (0..=MAX_ANSWER_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use qfabric_linux::testing::Watchdog;
    use tokio::runtime::Builder;

    use super::*;
    use crate::closer::testing::slow_to_close;
    use crate::control;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The listener accepts descriptors, as on a kernel without SO_PASSRIGHTS. The first descriptor comes with the
    /// request, the second one is in an unread message when the connection is closed.
    #[test]
    fn a_descriptor_that_takes_an_hour_to_close_delays_no_other_ring() {
        let _watchdog = Watchdog::start("a ring beside a descriptor that takes long to close");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring.sock");
        let listener = fds::listen(&path, 8).unwrap();
        rustix::io::ioctl_fionbio(&listener, true).unwrap();
        let (requests, _receiver) = control::requests(Arc::new(wake_descriptor().unwrap()));
        let hostile = fds::connect(&path, PATIENCE).unwrap();
        let ((with_request, first_end), (unread, second_end)) = (slow_to_close(), slow_to_close());
        fds::send(&hostile, b"not a number", &[with_request.as_fd()]).unwrap();
        fds::send(&hostile, b"more", &[unread.as_fd()]).unwrap();
        // Before the service takes the messages: else the last copies may be these, and this thread would wait.
        drop((with_request, unread));
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve_rings(listener, requests, 16, PATIENCE))
        });
        for _ in 0..3 {
            let client = fds::connect(&path, PATIENCE).unwrap();
            fds::send(&client, b"none", &[]).unwrap();
            let mut answer = [0; 1024];
            let got = fds::recv(&client, &mut answer).unwrap();
            assert!(answer[..got.length].starts_with(b"invalid: "), "{:?}", &answer[..got.length]);
        }
        drop((hostile, first_end, second_end));
    }

    #[test]
    fn only_a_decimal_number_names_an_application() {
        assert_eq!(number(b"42"), Some(AppId(42)));
        assert_eq!(number(b" 42\n"), Some(AppId(42)));
        for nonsense in [&b""[..], b"-1", b"0x2a", b"42 43", b"\xff\xfe", b"99999999999999999999999"] {
            assert_eq!(number(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_refusal_fits_into_the_clients_buffer() {
        let problem = problem::invalid("é".repeat(400));
        let text = refusal(&problem);
        assert!(text.len() <= MAX_ANSWER_BYTES && text.starts_with("invalid: é"), "{}", text.len());
    }
}
