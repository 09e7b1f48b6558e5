//! Acknowledges the messages of a delay measurement on another host (QualMan §5.1.2): as `qfabric net answer`, or in the
//! daemon with `[net] answer = PORT`.
//!
//! Everybody who reaches the port can send messages, so the daemon answers only if the administrator asks for it. The
//! memory is bounded, and an answer is shorter than what arrives.

mod answerer;
mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use answerer::{Answerer, is_for_a_moment};
pub use wire::{LONGEST, MOST_BYTES, MessageId, PORT, Part};

use crate::ending::{Ending, Running};

/// A socket at this address, or at all addresses of the host.
pub fn listen(address: Option<IpAddr>, port: u16) -> io::Result<UdpSocket> {
    // A host without IPv6 has only the second of all addresses.
    let all = [IpAddr::from([0u16; 8]), IpAddr::from([0; 4])];
    let addresses = address.map_or(all.to_vec(), |address| vec![address]);
    UdpSocket::bind(&addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect::<Vec<_>>()[..])
}

/// Answers in a thread of the daemon.
pub(crate) fn start_thread(port: u16, ending: &Ending) -> io::Result<Running> {
    let (socket, stop) = (listen(None, port)?, Arc::new(AtomicBool::new(false)));
    tracing::info!(port, "answering measurements of delays (net.answer)");
    let stopped = stop.clone();
    // It looks at the flag ten times a second.
    ending.run("qf-answer", move || answer(&socket, &stopped), move || stop.store(true, Ordering::Relaxed))
}

fn answer(socket: &UdpSocket, stop: &AtomicBool) {
    if let Err(error) = Answerer::default().run(socket, stop) {
        tracing::error!(%error, "measurements of delays are no longer answered; restart the service");
    }
}
