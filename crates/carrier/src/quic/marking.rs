//! Sockets whose packets all carry a code point (DSCP, RFC 2474) for the routers and access points of the path.
//!
//! quinn's own socket states the whole field of each packet, with the bits of congestion notification, and so clears the
//! code point of the socket. These sockets state no field: the kernel takes that of the socket. Costs: one system call
//! for each packet, and no explicit congestion notification, which quinn notices and stops to use.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The runtime of tokio, with sockets that carry this code point; also after the address of an endpoint changes.
#[derive(Debug)]
struct Marking(u8);

/// The runtime for the sockets of an endpoint.
pub(super) fn runtime(dscp: Option<u8>) -> Arc<dyn Runtime> {
    match dscp {
        Some(dscp) => Arc::new(Marking(dscp)),
        None => Arc::new(TokioRuntime),
    }
}

impl Runtime for Marking {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        TokioRuntime.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        qfabric_client::set_dscp(&socket, self.0).map_err(io::Error::other)?;
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Arc::new(Marked { state, socket: UdpSocket::from_std(socket)? }))
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

#[derive(Debug)]
struct Marked {
    /// Receives, and has made the socket non-blocking.
    state: UdpSocketState,
    socket: UdpSocket,
}

impl AsyncUdpSocket for Marked {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable { socket: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.socket.try_send_to(transmit.contents, transmit.destination) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // As with quinn's socket, a packet that cannot be sent, such as a probe that is too large, is lost.
            _ => Ok(()),
        }
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_recv_ready(context))?;
            let receive = || self.state.recv((&self.socket).into(), buffers, meta);
            // An error means that nothing is there any more; the next round waits.
            if let Ok(received) = self.socket.try_io(Interest::READABLE, receive) {
                return Poll::Ready(Ok(received));
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Waits until the socket takes packets. Each waiter has a future of its own, because a socket wakes only the last caller
/// of its own poll functions.
struct Writable {
    socket: Arc<Marked>,
    waiting: Option<Wait>,
}

type Wait = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

impl std::fmt::Debug for Writable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writable").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = self.socket.clone();
        let wait = || -> Wait { Box::pin(async move { socket.socket.writable().await }) };
        let polled = self.waiting.get_or_insert_with(wait).as_mut().poll(context);
        if polled.is_ready() {
            self.waiting = None;
        }
        polled
    }
}
