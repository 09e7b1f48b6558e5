//! The datagrams of the kernel path: changes of parameters that the receiving kernel checks and applies by itself.
//!
//! The payload of a UDP datagram is 1 to [`BATCH`] changes, one after the other. A change is little endian:
//!
//! | byte | bytes | field |
//! |---|---|---|
//! | 0 | 4 | `QPV1`; the last character is the version |
//! | 4 | 4 | number of the peer, which the receiver gave the sender |
//! | 8 | 4 | epoch: the generation of the key |
//! | 12 | 2 | channel |
//! | 14 | 2 | parameter |
//! | 16 | 8 | value |
//! | 24 | 8 | sequence number |
//! | 32 | 16 | SipHash-2-4 with 128 bits of the bytes before, under the key of peer and epoch |
//!
//! The tag proves who sent the change, not that it is new: the receiver also compares (epoch, sequence) with the last
//! one of the peer. Values are not encrypted.

use std::fmt;

use siphasher::sip128::SipHasher24;

/// The first bytes of every change.
pub const MAGIC: [u8; 4] = *b"QPV1";
/// Bytes of a change.
pub const CHANGE_BYTES: usize = 48;
/// Most changes in one datagram.
pub const BATCH: usize = 64;
/// Peers of a host: their numbers are below.
pub const PEERS: u32 = 256;
/// Channels of a host: their numbers are below.
pub const CHANNELS: u16 = 64;
/// Parameters of a channel: their numbers are below.
pub const PARAMETERS: u16 = 16;

const TAGGED: usize = 32;

/// A secret of 128 bits that sender and receiver share for one epoch.
#[derive(Clone, PartialEq, Eq)]
pub struct PathKey([u8; 16]);

/// A new value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterChange {
    pub peer: u32,
    pub epoch: u32,
    pub channel: u16,
    pub parameter: u16,
    pub value: i64,
    pub sequence: u64,
}

/// The reason why bytes are not a change of a known peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// A wrong length or magic number.
    #[error("this is not a change of a parameter (1 to {BATCH} times {CHANGE_BYTES} bytes that begin with QPV1)")]
    Malformed,
    #[error("there is no key of this peer and epoch")]
    Unknown,
    #[error("the change was not made with the key of its peer")]
    Forged,
}

impl PathKey {
    pub fn new(bytes: [u8; 16]) -> PathKey {
        PathKey(bytes)
    }

    /// The key as the two numbers of SipHash's definition.
    pub fn words(&self) -> [u64; 2] {
        let whole = u128::from_le_bytes(self.0);
        [whole as u64, (whole >> 64) as u64]
    }

    fn tag(&self, bytes: &[u8]) -> [u8; 16] {
        SipHasher24::new_with_key(&self.0).hash(bytes).as_bytes()
    }
}

/// Does not show the key.
impl fmt::Debug for PathKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathKey")
    }
}

impl ParameterChange {
    pub fn encode(&self, key: &PathKey) -> [u8; CHANGE_BYTES] {
        let mut bytes = [0; CHANGE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.peer.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.channel.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.parameter.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.value.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        let tag = key.tag(&bytes[..TAGGED]);
        bytes[TAGGED..].copy_from_slice(&tag);
        bytes
    }

    /// Reads one change, and checks its tag under the key that `key` returns for peer and epoch.
    pub fn decode(bytes: &[u8], key: impl FnOnce(u32, u32) -> Option<PathKey>) -> Result<Self, ChangeError> {
        let whole: &[u8; CHANGE_BYTES] = bytes.try_into().map_err(|_| ChangeError::Malformed)?;
        if whole[..4] != MAGIC {
            return Err(ChangeError::Malformed);
        }
        let change = ParameterChange {
            peer: u32::from_le_bytes(part(whole, 4)),
            epoch: u32::from_le_bytes(part(whole, 8)),
            channel: u16::from_le_bytes(part(whole, 12)),
            parameter: u16::from_le_bytes(part(whole, 14)),
            value: i64::from_le_bytes(part(whole, 16)),
            sequence: u64::from_le_bytes(part(whole, 24)),
        };
        let key = key(change.peer, change.epoch).ok_or(ChangeError::Unknown)?;
        let (expected, given) =
            (u128::from_le_bytes(key.tag(&whole[..TAGGED])), u128::from_le_bytes(part(whole, TAGGED)));
        if expected == given { Ok(change) } else { Err(ChangeError::Forged) }
    }
}

/// Splits the payload of a datagram into its changes, of [`CHANGE_BYTES`] each.
pub fn split(payload: &[u8]) -> Result<impl Iterator<Item = &[u8]>, ChangeError> {
    let whole = payload.len().is_multiple_of(CHANGE_BYTES);
    match whole && (1..=BATCH).contains(&(payload.len() / CHANGE_BYTES)) {
        true => Ok(payload.chunks(CHANGE_BYTES)),
        false => Err(ChangeError::Malformed),
    }
}

fn part<const N: usize>(bytes: &[u8; CHANGE_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("within the change")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(seed: u8) -> PathKey {
        PathKey::new(std::array::from_fn(|i| seed.wrapping_add(i as u8)))
    }

    fn changes() -> impl Strategy<Value = ParameterChange> {
        let numbers = (any::<u32>(), any::<u32>(), any::<u16>(), any::<u16>(), any::<i64>(), any::<u64>());
        numbers.prop_map(|(peer, epoch, channel, parameter, value, sequence)| ParameterChange {
            peer,
            epoch,
            channel,
            parameter,
            value,
            sequence,
        })
    }

    /// The reference's vectors for the key 00 01 … 0f: no byte, and the byte 00.
    #[test]
    fn the_tag_is_that_of_siphashs_reference() {
        let none = [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93];
        let zero = [0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45];
        assert_eq!((key(0).tag(&[]), key(0).tag(&[0])), (none, zero));
        assert_eq!(key(0).words(), [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
    }

    #[test]
    fn a_change_has_the_documented_layout() {
        let change = ParameterChange { peer: 2, epoch: 3, channel: 4, parameter: 5, value: -2, sequence: 7 };
        let bytes = change.encode(&key(1));
        let head = [b'Q', b'P', b'V', b'1', 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 5, 0, 0xfe];
        assert_eq!((&bytes[..17], bytes[24]), (&head[..], 7));
    }

    #[test]
    fn a_key_is_not_printed_for_debugging() {
        assert_eq!(format!("{:?}", key(9)), "PathKey");
    }

    #[test]
    fn a_payload_is_1_to_64_whole_changes() {
        let bytes = [0; CHANGE_BYTES * (BATCH + 1)];
        let number = |length: usize| split(&bytes[..length]).map(Iterator::count).ok();
        assert_eq!([0, 1, 47, 48, 49, 96].map(number), [None, None, None, Some(1), None, Some(2)]);
        assert_eq!((number(48 * BATCH), number(48 * (BATCH + 1))), (Some(BATCH), None));
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(change in changes(), seed in any::<u8>()) {
            let decoded = ParameterChange::decode(&change.encode(&key(seed)), |peer, epoch| {
                ((peer, epoch) == (change.peer, change.epoch)).then(|| key(seed))
            });
            prop_assert_eq!(decoded, Ok(change));
        }

        #[test]
        fn one_changed_bit_is_noticed(change in changes(), bit in 0..8 * CHANGE_BYTES) {
            let mut bytes = change.encode(&key(3));
            bytes[bit / 8] ^= 1 << (bit % 8);
            let decoded = ParameterChange::decode(&bytes, |_, _| Some(key(3)));
            let expected = if bit < 32 { ChangeError::Malformed } else { ChangeError::Forged };
            prop_assert_eq!(decoded, Err(expected));
        }

        #[test]
        fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
            let mut bytes = bytes;
            if magic && bytes.len() >= MAGIC.len() {
                bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
            }
            prop_assert!(ParameterChange::decode(&bytes, |_, _| Some(key(0))).is_err());
        }
    }
}
