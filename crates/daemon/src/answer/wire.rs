//! The datagrams of a delay measurement: parts of a message, and the acknowledgment of a complete message.
//!
//! Both begin with the identity of a message. All numbers are in network byte order. An acknowledgment is never longer
//! than a part, so an answerer sends less than it receives.

/// The port of `qfabric net answer`, from the range that nobody registers.
pub const PORT: u16 = 59_714;
/// The longest datagram: with the headers of UDP, IPv6 and Ethernet, it is a packet of 1,514 bytes.
pub const LONGEST: usize = 1_452;
/// Bytes of a message in one datagram.
const DATA: usize = LONGEST - PART_HEADER;
/// Largest message in bytes.
pub const MOST_BYTES: u64 = 1 << 20;
/// Largest number of parts of a message.
pub(super) const MOST_PARTS: u16 = (MOST_BYTES as usize).div_ceil(DATA) as u16;

const PART_HEADER: usize = 16;
const PART: [u8; 4] = *b"QFmp";
const ACKNOWLEDGED: [u8; 4] = *b"QFma";

/// The identity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId {
    /// The number of the sender's process.
    pub run: u32,
    pub number: u32,
}

/// One part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub of: MessageId,
    /// From 0.
    pub index: u16,
    /// Number of parts of the message.
    pub parts: u16,
}

impl MessageId {
    /// The datagram that acknowledges the message.
    pub fn acknowledgment(self) -> [u8; 12] {
        let mut datagram = [0; 12];
        self.write(ACKNOWLEDGED, &mut datagram);
        datagram
    }

    /// The message that a datagram acknowledges; `None` for anything else.
    pub fn acknowledged_by(datagram: &[u8]) -> Option<MessageId> {
        MessageId::read(ACKNOWLEDGED, datagram)
    }

    fn write(self, kind: [u8; 4], datagram: &mut [u8]) {
        datagram[..4].copy_from_slice(&kind);
        datagram[4..8].copy_from_slice(&self.run.to_be_bytes());
        datagram[8..12].copy_from_slice(&self.number.to_be_bytes());
    }

    fn read(kind: [u8; 4], datagram: &[u8]) -> Option<MessageId> {
        let word = |at: usize| Some(u32::from_be_bytes(datagram.get(at..at + 4)?.try_into().ok()?));
        let (found, run, number) = (datagram.get(..4)?, word(4)?, word(8)?);
        (found == kind).then_some(MessageId { run, number })
    }
}

impl Part {
    /// Writes the header; the rest of the datagram is data without a meaning.
    pub fn write(self, datagram: &mut [u8]) {
        self.of.write(PART, datagram);
        datagram[12..14].copy_from_slice(&self.index.to_be_bytes());
        datagram[14..16].copy_from_slice(&self.parts.to_be_bytes());
    }

    /// `None` for anything else, and for more parts than a message has.
    pub fn read(datagram: &[u8]) -> Option<Part> {
        let half = |at: usize| Some(u16::from_be_bytes(datagram.get(at..at + 2)?.try_into().ok()?));
        let part = Part { of: MessageId::read(PART, datagram)?, index: half(12)?, parts: half(14)? };
        (part.index < part.parts && part.parts <= MOST_PARTS).then_some(part)
    }

    /// The parts of a message of `bytes` bytes, each with the length of its datagram.
    pub fn all(of: MessageId, bytes: u64) -> impl Iterator<Item = (Part, usize)> {
        let bytes = bytes.clamp(1, MOST_BYTES) as usize;
        let parts = bytes.div_ceil(DATA) as u16;
        (0..parts).map(move |index| {
            let data = (bytes - usize::from(index) * DATA).min(DATA);
            (Part { of, index, parts }, PART_HEADER + data)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: MessageId = MessageId { run: 7, number: 9 };

    proptest! {
        #[test]
        fn the_parts_carry_all_bytes_of_a_message(bytes in 1u64..MOST_BYTES) {
            let mut buffer = [0; LONGEST];
            let (mut carried, mut count) = (0, 0);
            for (part, length) in Part::all(ID, bytes) {
                part.write(&mut buffer);
                prop_assert!(length <= LONGEST && Part::read(&buffer[..length]) == Some(part));
                (carried, count) = (carried + length - PART_HEADER, count + 1);
                prop_assert_eq!(part.index + 1, count);
            }
            prop_assert_eq!(carried as u64, bytes);
        }

        #[test]
        fn no_datagram_is_read_as_more_than_a_message_has(datagram in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut forged = PART.to_vec();
            forged.extend(&datagram);
            let bounded = |part: Part| part.index < part.parts && part.parts <= MOST_PARTS;
            prop_assert!(Part::read(&datagram).is_none_or(bounded) && Part::read(&forged).is_none_or(bounded));
        }
    }

    #[test]
    fn parts_and_acknowledgments_are_not_confused() {
        assert_eq!(MessageId::acknowledged_by(&ID.acknowledgment()), Some(ID));
        assert_eq!((Part::read(&ID.acknowledgment()), MessageId::acknowledged_by(b"QFma")), (None, None));
    }
}
