//! The layout of a packet: the number of the frame, the number of the piece, the number of pieces, the release of
//! the frame, and then bytes of the frame.

use qfabric_types::Instant;

/// Size of a packet's payload in bytes. With headers, a packet fits into 1,500 bytes.
pub(crate) const PAYLOAD: usize = 1_400;
/// Size of the Ethernet, IPv4 and UDP headers in bytes, which the link counts in addition to the payload.
pub(crate) const HEADERS: usize = 14 + 20 + 8;
const LENGTH: usize = 16;

/// The header that every packet of a stream begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub frame: u32,
    pub piece: u16,
    pub pieces: u16,
    pub release: Instant,
}

impl Head {
    pub(crate) fn write(&self, packet: &mut [u8]) {
        packet[..4].copy_from_slice(&self.frame.to_le_bytes());
        packet[4..6].copy_from_slice(&self.piece.to_le_bytes());
        packet[6..8].copy_from_slice(&self.pieces.to_le_bytes());
        packet[8..LENGTH].copy_from_slice(&self.release.get().to_le_bytes());
    }

    /// Returns `None` if the packet does not belong to a stream.
    pub(crate) fn read(packet: &[u8]) -> Option<Head> {
        let head = packet.first_chunk::<LENGTH>()?;
        let (frame, rest) = head.split_first_chunk::<4>()?;
        let (piece, rest) = rest.split_first_chunk::<2>()?;
        let (pieces, release) = rest.split_first_chunk::<2>()?;
        Some(Head {
            frame: u32::from_le_bytes(*frame),
            piece: u16::from_le_bytes(*piece),
            pieces: u16::from_le_bytes(*pieces),
            release: Instant::new(u64::from_le_bytes(release.try_into().ok()?)),
        })
    }
}

/// Returns the number of packets for a frame of `bytes`, and their size in bytes on the link.
pub fn pieces(bytes: u32) -> (u16, u32) {
    let pieces = (bytes as usize).div_ceil(PAYLOAD - LENGTH).clamp(1, usize::from(u16::MAX));
    (pieces as u16, (pieces * (PAYLOAD + HEADERS)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_reads_back_what_was_written() {
        let head = Head { frame: 7, piece: 2, pieces: 9, release: Instant::new(u64::MAX - 1) };
        let mut packet = [0; PAYLOAD];
        head.write(&mut packet);
        assert_eq!(Head::read(&packet), Some(head));
        assert_eq!(Head::read(&packet[..8]), None, "too short");
    }

    #[test]
    fn every_byte_of_a_frame_fits() {
        assert_eq!(pieces(0), (1, 1_442));
        assert_eq!(pieces(1_384).0, 1);
        assert_eq!(pieces(1_385), (2, 2_884));
    }
}
