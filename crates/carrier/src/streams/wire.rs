//! The header of a stream.
//!
//! ```text
//! message: 1 | kind u8 | mode u8 | number u64 | size u32 | dropped before u32 | microseconds to the deadline u32, 0: none
//! finish:  2 | 0 | 0 | number of messages u64 | 0 u32 | 0 u32 | 0 u32                                   big endian
//! ```

use std::time::Duration;

use qfabric_metp::{FrameKind, Mode};

pub(crate) const HEADER: usize = 23;
/// The receiver stops a stream with this code when it refuses its header: the message is too large.
pub(crate) const TOO_LARGE: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Message(MessageHeader),
    Finish { total: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageHeader {
    pub(crate) number: u64,
    pub(crate) kind: FrameKind,
    pub(crate) mode: Mode,
    pub(crate) size: u32,
    /// Messages directly before this one that the sender dropped.
    pub(crate) dropped_before: u32,
    /// Time to the deadline when the header was written.
    pub(crate) deadline: Option<Duration>,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let (number, rest) = match self {
            Header::Finish { total } => (*total, None),
            Header::Message(message) => (message.number, Some(message)),
        };
        bytes[0] = if rest.is_some() { 1 } else { 2 };
        bytes[3..11].copy_from_slice(&number.to_be_bytes());
        if let Some(message) = rest {
            bytes[1] = message.kind as u8;
            bytes[2] = u8::from(message.mode == Mode::PartiallyReliable);
            bytes[11..15].copy_from_slice(&message.size.to_be_bytes());
            bytes[15..19].copy_from_slice(&message.dropped_before.to_be_bytes());
            bytes[19..23].copy_from_slice(&microseconds(message.deadline).to_be_bytes());
        }
        bytes
    }

    /// `None`: not a header, or a message above `largest` bytes.
    pub(crate) fn decode(bytes: &[u8; HEADER], largest: u64) -> Option<Header> {
        let number = u64::from_be_bytes(bytes[3..11].try_into().ok()?);
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        match bytes[0] {
            1 => {
                let size = word(11)?;
                let deadline = Some(word(19)?).filter(|us| *us > 0);
                let message = MessageHeader {
                    number,
                    kind: *FrameKind::ALL.get(usize::from(bytes[1]))?,
                    mode: [Mode::TotallyReliable, Mode::PartiallyReliable].get(usize::from(bytes[2])).copied()?,
                    size,
                    dropped_before: word(15)?,
                    deadline: deadline.map(|us| Duration::from_micros(us.into())),
                };
                // A number near the end of the range is a lie: the sender begins at 0.
                let is_good = (1..=largest).contains(&size.into()) && number < u64::MAX / 2;
                is_good.then_some(Header::Message(message))
            }
            2 => Some(Header::Finish { total: number }),
            _ => None,
        }
    }
}

/// At least one: a deadline that has passed is still a deadline.
fn microseconds(deadline: Option<Duration>) -> u32 {
    deadline.map_or(0, |time| u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_another_one_is_refused() {
        let message = MessageHeader {
            number: 7,
            kind: FrameKind::B,
            mode: Mode::PartiallyReliable,
            size: 1_000,
            dropped_before: 2,
            deadline: Some(Duration::from_millis(150)),
        };
        for header in [Header::Message(message), Header::Finish { total: 9 }] {
            assert_eq!(Header::decode(&header.encode(), 1_000), Some(header));
        }
        let good = Header::Message(message).encode();
        assert_eq!(Header::decode(&good, 999), None, "too large");
        for (at, value) in [(0, 3), (1, 5), (2, 2), (3, 0x80)] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(Header::decode(&bytes, 1_000), None, "byte {at}");
        }
    }
}
