//! `memory.sock`: one JSON message per request, one per answer ([`qfabric_types::api::memory`]).
//!
//! Each connection is one task. A request runs in a worker thread, because locking pages takes time. A client that
//! does not take its answer loses the connection, and with it everything that it holds.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use qfabric_shm::fds;
use qfabric_types::api::Problem;
use qfabric_types::api::memory::{MemoryAnswer, MemoryRequest};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::Memory;
use super::session::{Answered, Session};
use crate::api::{Place, accept_each};
use crate::auth::Peer;
use crate::closer::{Closer, LastClose};
use crate::{ending, problem};

/// Serves until dropped.
pub(crate) async fn serve(listener: OwnedFd, memory: Arc<Memory>, places: usize) -> io::Result<()> {
    // The refusal is the first message, so the socket has room for it.
    let refuse = |socket: &UnixStream, problem| _ = send(socket, &refused(problem));
    let closer = Closer::default();
    let serve = |socket, peer, place| serve_one(socket, peer, memory.clone(), closer.clone(), place);
    accept_each(listener, "memory.sock", places, serve, refuse).await
}

async fn serve_one(socket: UnixStream, peer: Peer, memory: Arc<Memory>, closer: Closer, place: Place) {
    let last = match LastClose::of(&socket, place, peer.owner.uid, &closer) {
        Ok(last) => last,
        Err(error) => return tracing::debug!(%error, pid = peer.pid, "a connection for memory is closed"),
    };
    if let Err(error) = exchange(&socket, peer, memory, &closer).await {
        tracing::debug!(%error, pid = peer.pid, "a connection for memory ended with an error");
    }
    drop(socket);
    last.end();
}

/// Answers requests until the client closes the connection.
async fn exchange(socket: &UnixStream, peer: Peer, memory: Arc<Memory>, closer: &Closer) -> io::Result<()> {
    let opened = aside(move || Session::open(memory, peer)).await?;
    let mut session = match opened {
        Ok(session) => session,
        Err(problem) => return send(socket, &refused(problem)),
    };
    let mut buffer = vec![0; MemoryRequest::MAX_BYTES];
    loop {
        let received = socket.async_io(Interest::READABLE, || fds::recv_all_now(socket, &mut buffer)).await;
        let Ok(received) = received else { break };
        if !received.fds.is_empty() {
            closer.close(peer.owner.uid, received.fds);
        }
        if received.length == 0 || received.is_cut || closer.is_full(peer.owner.uid) {
            break;
        }
        let length = received.length;
        let request = serde_json::from_slice::<MemoryRequest>(&buffer[..length]);
        let answered;
        (session, answered) = aside(move || {
            let answered = match request {
                Ok(request) => session.answer(request),
                Err(error) => refused(invalid(&error)),
            };
            (session, answered)
        })
        .await?;
        if send(socket, &answered).is_err() {
            break;
        }
    }
    // Unlocks pages, which takes time.
    aside(move || drop(session)).await
}

/// Runs `act` in a worker thread; a panic ends the service.
async fn aside<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let failed = || io::Error::other("the request panicked; the service ends");
    ending::worker("memory worker", act).await.ok_or_else(failed)
}

fn invalid(error: &serde_json::Error) -> Problem {
    problem::invalid(format!("the message is no request for memory: {error}"))
}

fn refused(problem: Problem) -> Answered {
    (MemoryAnswer::Refused(Box::new(problem)), None)
}

fn send(socket: &UnixStream, (answer, file): &Answered) -> io::Result<()> {
    let text = serde_json::to_vec(answer).expect("answers are plain values");
    let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
    fds::send(socket, &text, &files)
}
