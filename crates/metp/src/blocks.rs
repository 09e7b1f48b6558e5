//! Blocks: the units of METP's sequence space.
//!
//! A position in the sequence space counts blocks of 8 bytes. A message begins at a block boundary, so each block
//! belongs to one message, and a TPDU covers whole blocks. The paper numbers TPDUs; with blocks, a TPDU can be cut
//! again for a carrier with smaller datagrams, and keeps its place in the sequence space.

/// Bytes of a block.
pub(crate) const BLOCK: u32 = 8;

/// The largest message: its size travels as 24 bits.
pub(crate) const MOST_MESSAGE: u32 = (1 << 24) - 1;

/// Blocks that `bytes` need.
pub(crate) const fn blocks_of(bytes: u32) -> u32 {
    bytes.div_ceil(BLOCK)
}

/// The number whose low `bits` bits are `low` and that is nearest to `near`; numbers below zero are not possible.
pub(crate) fn extended(low: u32, bits: u32, near: u64) -> u64 {
    let range = 1u64 << bits;
    let candidate = (near & !(range - 1)) | u64::from(low);
    let half = range / 2;
    if candidate > near.saturating_add(half) && candidate >= range {
        candidate - range
    } else if near > candidate.saturating_add(half) {
        candidate.saturating_add(range)
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_extended_to_the_nearest_one() {
        assert_eq!(extended(3, 16, 70_000), 65_539);
        assert_eq!(extended(65_535, 16, 65_537), 65_535);
        assert_eq!(extended(65_535, 16, 2), 65_535, "no number is negative");
        assert_eq!(extended(0, 16, 65_535), 65_536);
        for near in [0, 1, 65_535, 1 << 20, 123_456_789_123] {
            for distance in [0, 1, 32_000] {
                let number: u64 = near + distance;
                assert_eq!(extended((number & 0xffff) as u32, 16, near), number);
                let number = near.saturating_sub(distance);
                assert_eq!(extended((number & 0xffff) as u32, 16, near), number);
            }
        }
    }
}
