//! Plain UDP: no encryption, no authentication, no congestion control. For comparisons in the laboratory.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use qfabric_types::BitRate;
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;

use crate::Error;
use crate::carrier::{Carrier, CarrierCounts, CarrierKind, Path, Sent};

/// Bytes of the headers of UDP, IPv4 and Ethernet.
const OVERHEAD: usize = 8 + 20 + 14;
/// A larger datagram than any path of the laboratory carries is cut off and refused by METP.
const LARGEST: usize = 9_000;

/// The caller knows that the network is a laboratory's: no other host reads or sends on it.
#[derive(Clone, Copy, Debug)]
pub struct Laboratory;

/// A connected UDP socket.
pub(crate) struct UdpCarrier {
    socket: UdpSocket,
    addresses: (SocketAddr, SocketAddr),
    max_datagram: usize,
    rate: BitRate,
    counts: CarrierCounts,
}

impl UdpCarrier {
    /// Connects two addresses of loopback; other addresses need a [`Laboratory`]. Must be called in a runtime.
    ///
    /// # Errors
    /// [`Error::PlainUdp`], or the socket cannot be made.
    pub(crate) async fn connect(
        local: SocketAddr,
        peer: SocketAddr,
        max_datagram: usize,
        rate: BitRate,
        laboratory: Option<Laboratory>,
    ) -> Result<UdpCarrier, Error> {
        let is_local = local.ip().is_loopback() && peer.ip().is_loopback();
        if !is_local && laboratory.is_none() {
            return Err(Error::PlainUdp { local, peer });
        }
        let socket = UdpSocket::bind(local).await.map_err(Error::io(format!("cannot use {local}")))?;
        socket.connect(peer).await.map_err(Error::io(format!("cannot send to {peer}")))?;
        let local = socket.local_addr().map_err(Error::io("cannot read the own address"))?;
        let max_datagram = max_datagram.min(LARGEST);
        Ok(UdpCarrier { socket, addresses: (local, peer), max_datagram, rate, counts: CarrierCounts::default() })
    }
}

impl Carrier for UdpCarrier {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Udp
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some(self.addresses)
    }

    fn path(&mut self) -> Path {
        Path { max_datagram: self.max_datagram, overhead: OVERHEAD, min_rtt: None, rate: Some(self.rate) }
    }

    fn send(&mut self, datagram: &[u8]) -> Sent {
        if datagram.len() > self.max_datagram {
            return Sent::TooLarge;
        }
        match self.socket.try_send(datagram) {
            Ok(_) => {
                self.counts.sent += 1;
                self.counts.sent_bytes += datagram.len() as u64;
                Sent::Yes
            }
            // No receiver yet, or none any more: its silence ends the session.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {
                self.counts.refused += 1;
                Sent::Full
            }
            Err(_) => Sent::Closed,
        }
    }

    fn has_room(&self) -> bool {
        true
    }

    fn poll_room(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn poll_receive(&mut self, context: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<bool> {
        buffer.resize(LARGEST, 0);
        let mut read = ReadBuf::new(buffer);
        match self.socket.poll_recv(context, &mut read) {
            Poll::Ready(Ok(())) => {
                let length = read.filled().len();
                buffer.truncate(length);
                self.counts.received += 1;
                self.counts.received_bytes += length as u64;
                Poll::Ready(true)
            }
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                buffer.clear();
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(false),
            Poll::Pending => {
                buffer.clear();
                Poll::Pending
            }
        }
    }

    fn counts(&self) -> CarrierCounts {
        self.counts
    }

    fn close(&mut self, _reason: &str) {}
}
