//! Messages (APDUs) as the application passes them in.

use std::fmt;

use qfabric_types::api::Problem;
use qfabric_types::{Bytes, Nanos};

/// The number of a message: one sequence for each direction of a session, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageNumber(u64);

impl MessageNumber {
    pub const fn new(number: u64) -> Self {
        MessageNumber(number)
    }
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MessageNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of a frame decides which message is dropped first: B, then P from the tail of its group, never I. Audio
/// and other messages are dropped only when they cannot arrive in time themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    I,
    P,
    B,
    Audio,
    Other,
}

impl FrameKind {
    pub const ALL: [FrameKind; 5] = [FrameKind::I, FrameKind::P, FrameKind::B, FrameKind::Audio, FrameKind::Other];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// Reliability of a message (§5.2.3). The mode of a session is the mode of the messages that are sent from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Every byte arrives, in order. Deadlines only count which messages were in time.
    TotallyReliable,
    /// Deadlines come first: late data is neither sent nor delivered.
    PartiallyReliable,
}

/// A message to send. The session copies `data`.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    pub kind: FrameKind,
    /// The time from the call of `send` to the arrival of the last byte. Without it, the maximum time for a send of
    /// the configuration applies. At most 65 s; a longer time counts as 65 s.
    pub deadline: Option<Nanos>,
    pub data: &'a [u8],
}

/// `send` did not take the message. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendRefusal {
    #[error("the message has no bytes")]
    Empty,
    #[error("the message has {} bytes, of at most {}", size.get(), limit.get())]
    TooLarge { size: Bytes, limit: Bytes },
    #[error("{messages} messages wait, of at most {limit}")]
    TooManyMessages { messages: u16, limit: u16 },
    #[error("{} bytes wait, of at most {}; the message has {} bytes", waiting.get(), limit.get(), size.get())]
    NoMemory { waiting: Bytes, size: Bytes, limit: Bytes },
    #[error("the sending half is finished")]
    Finished,
}

impl SendRefusal {
    pub fn problem(&self) -> Problem {
        let (code, next_step) = match self {
            SendRefusal::Empty => ("empty_message", "send at least one byte"),
            SendRefusal::TooLarge { .. } => {
                ("message_too_large", "split the message, or agree on a larger APDU on both sides")
            }
            SendRefusal::TooManyMessages { .. } | SendRefusal::NoMemory { .. } => {
                ("queue_full", "wait for the outcome of an earlier message, or send at a lower rate")
            }
            SendRefusal::Finished => ("finished", "open another session"),
        };
        Problem::new(code, self.to_string(), next_step)
    }
}
