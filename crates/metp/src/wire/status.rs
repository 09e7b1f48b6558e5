//! The sender's status: its whole control state in one datagram, repeated until the peer has acknowledged its version.
//! A later status replaces an earlier one, so lost and reordered ones do no harm.

use super::{Flags, NotReadable, Reader, STATUS, begin};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// Number of this state; a change of the state increases it.
    pub(crate) version: u32,
    /// The number and the position of the next message.
    pub(crate) next_number: u64,
    pub(crate) next_block: u64,
    /// The sender has an outcome for all messages below this number, which end at this position: it sends no more of
    /// them.
    pub(crate) floor_number: u64,
    pub(crate) floor_block: u64,
    /// The first message of the current mode.
    pub(crate) mode_from: u64,
    pub(crate) is_partial: bool,
    /// The proposed datagram size.
    pub(crate) tpdu_size: u16,
    /// The shortest round-trip time in µs; zero before the first measurement.
    pub(crate) min_rtt_us: u32,
    /// The sender sends no more messages.
    pub(crate) is_finished: bool,
}

impl Status {
    pub(crate) fn write(&self, tag: u16, out: &mut Vec<u8>) {
        begin(STATUS, Flags::of([self.is_finished, self.is_partial, false]), tag, out);
        out.extend_from_slice(&self.version.to_be_bytes());
        let words = [self.next_number, self.next_block, self.floor_number, self.floor_block, self.mode_from];
        for word in words {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&self.tpdu_size.to_be_bytes());
        out.extend_from_slice(&self.min_rtt_us.to_be_bytes());
    }

    pub(super) fn read(flags: Flags, reader: &mut Reader<'_>) -> Result<Status, NotReadable> {
        let status = Status {
            is_finished: flags.has(0),
            is_partial: flags.has(1),
            version: reader.u32()?,
            next_number: reader.u64()?,
            next_block: reader.u64()?,
            floor_number: reader.u64()?,
            floor_block: reader.u64()?,
            mode_from: reader.u64()?,
            tpdu_size: reader.u16()?,
            min_rtt_us: reader.u32()?,
        };
        let is_ordered = status.floor_number <= status.next_number && status.floor_block <= status.next_block;
        // Numbers near the end of the range are a lie: the sender begins at 0.
        let is_possible = status.next_number < u64::MAX / 2 && status.next_block < u64::MAX / 2;
        (reader.bytes.is_empty() && is_ordered && is_possible).then_some(status).ok_or(NotReadable)
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn numbers_at_the_end_of_their_range_are_refused() {
        let is_read = |next_number, next_block| {
            let mut bytes = Vec::new();
            let status = Status {
                version: 1,
                next_number,
                next_block,
                floor_number: 0,
                floor_block: 0,
                mode_from: 0,
                is_partial: false,
                tpdu_size: 1_200,
                min_rtt_us: 0,
                is_finished: false,
            };
            status.write(7, &mut bytes);
            read(&bytes, 7).is_ok()
        };
        assert!(is_read(1 << 40, 1 << 40));
        assert!(!is_read(u64::MAX, 0) && !is_read(0, u64::MAX));
    }
}
