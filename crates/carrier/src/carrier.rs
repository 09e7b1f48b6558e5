//! What a session needs of a carrier: to send and to receive datagrams, each at most once and in any order.

use std::net::SocketAddr;
use std::task::{Context, Poll};

use qfabric_types::{BitRate, Nanos};

use crate::Error;
use crate::quic::Governor;

/// The kinds of carriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CarrierKind {
    /// Datagrams of a QUIC connection, authenticated and encrypted.
    QuicDatagrams,
    /// Streams of a QUIC connection, one for each message.
    QuicStreams,
    /// A queue within this process.
    Memory,
    /// UDP without encryption, for the laboratory.
    Udp,
}

/// The result of sending one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes,
    /// The layer below takes no datagram now. The datagram is lost for METP, which sends it again.
    Full,
    /// The path takes smaller datagrams only.
    TooLarge,
    Closed,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// The largest datagram, in bytes. May change at any time.
    pub(crate) max_datagram: usize,
    /// Bytes that the layers below add to each datagram, link header included.
    pub(crate) overhead: usize,
    pub(crate) min_rtt: Option<Nanos>,
    /// The rate that congestion control allows now; none: nothing limits it.
    pub(crate) rate: Option<BitRate>,
}

/// Counts of a carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CarrierCounts {
    pub sent: u64,
    pub sent_bytes: u64,
    pub received: u64,
    pub received_bytes: u64,
    /// Datagrams that the layer below did not take.
    pub refused: u64,
    /// Bytes that the layer below declared lost.
    pub lost_bytes: u64,
    /// How often the path's largest datagram became smaller.
    pub mtu_drops: u64,
}

/// One way for datagrams between two endpoints. A session has several, and changes them while it runs.
pub(crate) trait Carrier {
    fn kind(&self) -> CarrierKind;
    /// The addresses of both ends; none within a process.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)>;
    fn path(&mut self) -> Path;
    /// Never waits, and never keeps more than about 20 kB: METP owns the queue, so that it can drop what is late.
    fn send(&mut self, datagram: &[u8]) -> Sent;
    /// Whether a datagram would be taken now.
    fn has_room(&self) -> bool;
    /// Waits for room.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()>;
    /// Whether no datagram waits in the layer below.
    fn is_drained(&self) -> bool {
        true
    }
    /// Appends the next datagram to the empty `buffer`. `Ready(false)`: the carrier is closed.
    fn poll_receive(&mut self, context: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<bool>;
    fn counts(&self) -> CarrierCounts;
    /// The granted rate of the path, if it has congestion control.
    fn governor(&self) -> Option<&Governor> {
        None
    }
    /// Changes the own address; the other side follows.
    fn rebind(&mut self, local: SocketAddr) -> Result<(), Error> {
        Err(Error::Option {
            option: "carrier",
            value: format!("{:?} at {local}", self.kind()),
            allowed: "QUIC carriers",
        })
    }
    /// Why the path is closed, if it is.
    fn close_reason(&self) -> Option<String> {
        None
    }
    /// Closes the path; the other side learns the reason if the carrier can tell it.
    fn close(&mut self, reason: &str);
}
