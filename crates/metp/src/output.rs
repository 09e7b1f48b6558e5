//! Outputs of a session. The caller takes them with `Session::poll` after each input.

use qfabric_types::{Bytes, Instant, Nanos};

use crate::{CarrierId, FrameKind, MessageNumber, Mode};

/// An output for the caller to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a datagram: `Session::datagram` lends its bytes until the next call that changes the session.
    Datagram { carrier: CarrierId },
    /// A message for the application: `Session::message` lends its bytes, and `Session::holes` its holes, until the
    /// next call that changes the session.
    Received(Received),
    /// Messages that will not be delivered: the sender dropped them, or none of their TPDUs arrived in time.
    Skipped { first: MessageNumber, count: u64 },
    /// The result of a message that this side sent. Each accepted message has exactly one outcome.
    Outcome {
        number: MessageNumber,
        kind: FrameKind,
        size: Bytes,
        /// When its first byte was sent; `None` if none was.
        first_sent: Option<Instant>,
        outcome: Outcome,
    },
    /// The peer switched the mode of the messages that it sends, from this message on.
    ModeChanged { mode: Mode, from: MessageNumber },
    /// The peer sends no more messages, and all its messages have been delivered or skipped.
    PeerFinished,
    /// The session has ended. It still answers the peer's last datagrams while the caller passes them in.
    Ended(EndReason),
}

/// A message that arrived, completely or with holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub number: MessageNumber,
    pub kind: FrameKind,
    /// The message's size, holes included.
    pub size: Bytes,
    /// Bytes that arrived; less than `size` if the message has holes.
    pub arrived: Bytes,
    /// How much later than its deadline the message is delivered; zero if it is in time or has no deadline.
    pub late_by: Nanos,
    /// Time from the sending of the first TPDU that arrived, to the arrival of the last one. It contains half of the
    /// minimum round-trip time as an estimate of the shortest way.
    pub delay: Nanos,
}

impl Received {
    pub fn is_complete(&self) -> bool {
        self.arrived == self.size
    }
}

/// The result of a message on the sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver acknowledged all bytes.
    Delivered,
    /// No byte was sent, or the receiver refused the message as too large.
    Dropped(DropReason),
    /// The deadline passed, and the receiver acknowledged no byte.
    Expired,
    /// The deadline passed, and the receiver acknowledged these bytes only.
    Partly { acknowledged: Bytes },
    /// The session ended before the result was known.
    Unknown,
}

/// Why a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The backlog, the message's own time at the granted rate and the network's delay exceed its deadline.
    WouldBeLate,
    /// Another message of higher value would have been late.
    MadeRoom,
    /// The receiver accepts only smaller messages.
    TooLargeForPeer,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Both sides finished, and all messages have an outcome.
    Finished,
    /// This side called `close`.
    Closed,
    /// The peer closed the session.
    ClosedByPeer,
    /// No datagram of the peer arrived for the idle limit of the configuration.
    PeerSilent,
}
