//! The first bytes of every frame: when it was due, and its number.
//!
//! A frame's delay counts from the time when it was due, not from the time when an engine took it: an engine that
//! blocks the sender does not hide the delay of the next frames.

use crate::plan::Frame;

/// Bytes of the stamp.
pub(crate) const STAMP: usize = 16;
/// Least bytes of a frame.
pub(crate) const LEAST: u32 = STAMP as u32 + 1;

/// What the receiver learns of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// On CLOCK_MONOTONIC, which both processes share.
    pub due_ns: u64,
    pub number: u32,
    pub size: u32,
}

impl Stamp {
    pub(crate) fn encode(self) -> [u8; STAMP] {
        let mut bytes = [0; STAMP];
        bytes[..8].copy_from_slice(&self.due_ns.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.number.to_be_bytes());
        bytes[12..].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    /// The stamp of a frame of this plan; `None` if no frame of the plan begins like this.
    pub(crate) fn decode(bytes: &[u8; STAMP], plan: &[Frame]) -> Option<Stamp> {
        let [b0, b1, b2, b3, b4, b5, b6, b7, n0, n1, n2, n3, s0, s1, s2, s3] = *bytes;
        let stamp = Stamp {
            due_ns: u64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
            number: u32::from_be_bytes([n0, n1, n2, n3]),
            size: u32::from_be_bytes([s0, s1, s2, s3]),
        };
        (plan.get(stamp.number as usize)?.size == stamp.size).then_some(stamp)
    }

    /// The whole frame; the bytes behind the stamp repeat the low byte of its number.
    pub(crate) fn frame(self) -> Vec<u8> {
        let mut bytes = vec![self.number as u8; self.size as usize];
        bytes[..STAMP].copy_from_slice(&self.encode());
        bytes
    }

    /// Whether `frame` is the whole frame, by its size and the bytes at its ends: the engines' own checks are not
    /// repeated for each byte.
    pub(crate) fn fits(self, frame: &[u8]) -> bool {
        let ends = [frame.get(STAMP), frame.last()];
        frame.len() == self.size as usize && ends == [Some(&(self.number as u8)); 2]
    }

    /// The stamp of a whole frame.
    pub(crate) fn of(frame: &[u8], plan: &[Frame]) -> Option<Stamp> {
        Stamp::decode(frame.first_chunk()?, plan).filter(|stamp| stamp.fits(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Kind;

    const PLAN: [Frame; 2] = [Frame { kind: Kind::I, size: 40 }, Frame { kind: Kind::B, size: 20 }];

    #[test]
    fn only_a_whole_frame_of_the_plan_has_a_stamp() {
        let stamp = Stamp { due_ns: 7, number: 1, size: 20 };
        let frame = stamp.frame();
        assert_eq!(Stamp::of(&frame, &PLAN), Some(stamp));
        assert_eq!(Stamp::of(&frame[..19], &PLAN), None, "a byte is missing");
        assert_eq!(Stamp::of(&frame[..9], &PLAN), None);
        assert_eq!(Stamp::of(&Stamp { number: 2, ..stamp }.frame(), &PLAN), None, "the plan has no frame 2");
        assert_eq!(Stamp::of(&Stamp { size: 21, ..stamp }.frame(), &PLAN), None);
        assert_eq!(Stamp::of(&[&frame[..19], &[0]].concat(), &PLAN), None, "the last byte differs");
    }
}
