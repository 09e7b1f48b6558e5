//! A carrier of QUIC datagrams.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use qfabric_types::{BitRate, Nanos};
use quinn::{Connection, SendDatagramError};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::Authenticated;
use crate::carrier::{Carrier, CarrierCounts, CarrierKind, Path, Sent};

/// Datagrams between quinn and the session; more wait in quinn's bounded buffer.
const LONGEST_QUEUE: usize = 256;
/// Bytes of the headers of UDP and Ethernet.
const UDP_AND_LINK: usize = 8 + 14;

type Waiting = Pin<Box<dyn Future<Output = Result<(), SendDatagramError>>>>;

pub(crate) struct QuicDatagrams {
    pub(crate) path: Authenticated,
    arrived: mpsc::Receiver<Bytes>,
    reader: AbortHandle,
    /// The one datagram that did not fit into quinn's buffer. Until it does, the carrier has no room.
    waiting: Option<Waiting>,
    /// The space of quinn's buffer while it is empty.
    whole_space: usize,
    max_datagram: usize,
    counts: CarrierCounts,
}

impl QuicDatagrams {
    /// Must be called in a `LocalSet`.
    pub(crate) fn new(path: Authenticated) -> QuicDatagrams {
        let (arrivals, arrived) = mpsc::channel(LONGEST_QUEUE);
        let connection = path.connection.clone();
        let reader = tokio::task::spawn_local(async move {
            while let Ok(datagram) = connection.read_datagram().await {
                if arrivals.send(datagram).await.is_err() {
                    return;
                }
            }
        });
        let max_datagram = path.connection.max_datagram_size().unwrap_or_default();
        let (reader, whole_space) = (reader.abort_handle(), path.connection.datagram_send_buffer_space());
        let counts = CarrierCounts::default();
        QuicDatagrams { path, arrived, reader, waiting: None, whole_space, max_datagram, counts }
    }

    fn connection(&self) -> &Connection {
        &self.path.connection
    }
}

impl Drop for QuicDatagrams {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Carrier for QuicDatagrams {
    fn kind(&self) -> CarrierKind {
        CarrierKind::QuicDatagrams
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let peer = self.connection().remote_address();
        let local = self.path.endpoint.local_addr().ok()?;
        // A socket on all addresses learns its own one from the packets.
        let ip = self.connection().local_ip().unwrap_or_else(|| local.ip());
        Some((SocketAddr::new(ip, local.port()), peer))
    }

    fn path(&mut self) -> Path {
        let path = self.connection().stats().path;
        let max_datagram = self.connection().max_datagram_size().unwrap_or_default();
        if max_datagram < self.max_datagram {
            self.counts.mtu_drops += 1;
        }
        self.max_datagram = max_datagram;
        let quic = usize::from(path.current_mtu).saturating_sub(max_datagram);
        let ip = if self.connection().remote_address().ip().to_canonical().is_ipv4() { 20 } else { 40 };
        let min_rtt = Nanos::new(self.connection().min_rtt().as_nanos() as u64);
        let window = u128::from(path.cwnd) * 8_000_000_000 / path.rtt.as_nanos().max(1);
        let window = BitRate::new(u64::try_from(window).unwrap_or(u64::MAX));
        let rate = self.path.governor.granted().unwrap_or(window);
        Path { max_datagram, overhead: quic + ip + UDP_AND_LINK, min_rtt: Some(min_rtt), rate: Some(rate) }
    }

    fn send(&mut self, datagram: &[u8]) -> Sent {
        if self.waiting.is_some() {
            self.counts.refused += 1;
            return Sent::Full;
        }
        if datagram.len() > self.max_datagram {
            return Sent::TooLarge;
        }
        let bytes = Bytes::copy_from_slice(datagram);
        if self.connection().datagram_send_buffer_space() < bytes.len() {
            let connection = self.connection().clone();
            let waits = async move { connection.send_datagram_wait(bytes).await };
            self.waiting = Some(Box::pin(waits));
        } else if let Err(error) = self.connection().send_datagram(bytes) {
            return match error {
                SendDatagramError::TooLarge => Sent::TooLarge,
                _ => Sent::Closed,
            };
        }
        self.counts.sent += 1;
        self.counts.sent_bytes += datagram.len() as u64;
        Sent::Yes
    }

    fn has_room(&self) -> bool {
        self.waiting.is_none()
    }

    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(waiting) = &mut self.waiting {
            std::task::ready!(waiting.as_mut().poll(context)).unwrap_or_default();
            self.waiting = None;
        }
        Poll::Ready(())
    }

    fn is_drained(&self) -> bool {
        self.waiting.is_none() && self.connection().datagram_send_buffer_space() >= self.whole_space
    }

    fn poll_receive(&mut self, context: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<bool> {
        let arrived = std::task::ready!(self.arrived.poll_recv(context));
        if let Some(datagram) = &arrived {
            self.counts.received += 1;
            self.counts.received_bytes += datagram.len() as u64;
            buffer.extend_from_slice(datagram);
        }
        Poll::Ready(arrived.is_some())
    }

    fn counts(&self) -> CarrierCounts {
        CarrierCounts { lost_bytes: self.path.governor.lost_bytes(), ..self.counts }
    }

    fn governor(&self) -> Option<&super::Governor> {
        Some(&self.path.governor)
    }

    fn rebind(&mut self, local: SocketAddr) -> Result<(), crate::Error> {
        if self.connection().side().is_server() {
            // The socket belongs to the whole service.
            let allowed = "the side that opened the connection";
            return Err(crate::Error::Option { option: "rebind", value: local.to_string(), allowed });
        }
        let socket = super::config::socket(local)?;
        self.path.endpoint.rebind(socket).map_err(crate::Error::io(format!("cannot change to {local}")))
    }

    fn close_reason(&self) -> Option<String> {
        self.connection().close_reason().map(|error| error.to_string())
    }

    fn close(&mut self, reason: &str) {
        self.connection().close(0u32.into(), reason.as_bytes());
    }
}
