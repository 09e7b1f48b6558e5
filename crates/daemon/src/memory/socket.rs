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
use tokio::task::spawn_blocking;

use super::Memory;
use super::session::{Answered, Session};
use crate::api::{Place, accept_each};
use crate::auth::Peer;
use crate::problem;

/// Serves until dropped.
pub(crate) async fn serve(listener: OwnedFd, memory: Arc<Memory>, places: usize) -> io::Result<()> {
    // The refusal is the first message, so the socket has room for it.
    let refuse = |socket: &UnixStream, problem| _ = send(socket, &refused(problem));
    let serve = |socket, peer, place| serve_one(socket, peer, memory.clone(), place);
    accept_each(listener, "memory.sock", places, serve, refuse).await
}

async fn serve_one(socket: UnixStream, peer: Peer, memory: Arc<Memory>, _place: Place) {
    if let Err(error) = exchange(&socket, peer, memory).await {
        tracing::debug!(%error, pid = peer.pid, "a connection for memory ended with an error");
    }
}

/// Answers requests until the client closes the connection.
async fn exchange(socket: &UnixStream, peer: Peer, memory: Arc<Memory>) -> io::Result<()> {
    let opened = spawn_blocking(move || Session::open(memory, peer)).await?;
    let mut session = match opened {
        Ok(session) => session,
        Err(problem) => return send(socket, &refused(problem)),
    };
    let mut buffer = vec![0; MemoryRequest::MAX_BYTES];
    loop {
        let received = socket.async_io(Interest::READABLE, || fds::recv(socket, &mut buffer)).await;
        let length = match received {
            Ok(received) if received.length > 0 => received.length,
            _ => break,
        };
        let request = serde_json::from_slice::<MemoryRequest>(&buffer[..length]);
        let answered;
        (session, answered) = spawn_blocking(move || {
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
    spawn_blocking(move || drop(session)).await?;
    Ok(())
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
