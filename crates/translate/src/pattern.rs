//! The compression pattern of a group of pictures (GOP), and the frames that a degradation factor drops.

use std::fmt;
use std::str::FromStr;

use crate::rate::Fraction;

/// The kind of a frame of compressed video.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// Coded alone.
    I,
    /// Predicted from the I or P frame before it.
    P,
    /// Predicted from the I and P frames on both sides; no frame depends on it.
    B,
}

/// The kinds of the frames of a GOP in their order, such as `IBBPBBPBBPBB`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GopPattern(Vec<FrameKind>);

/// A text is not a GOP pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("1 to {} letters I, P and B, beginning with I, such as IBBPBBPBBPBB", GopPattern::MAX)]
pub struct InvalidPattern;

impl GopPattern {
    /// Limit of the frames of a GOP; bounds the work of a translation.
    pub const MAX: usize = 256;

    pub fn kinds(&self) -> &[FrameKind] {
        &self.0
    }
    /// G_I, G_P or G_B: the number of frames of one kind.
    pub fn count(&self, kind: FrameKind) -> u64 {
        self.0.iter().filter(|found| **found == kind).count() as u64
    }
}

impl FromStr for GopPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<GopPattern, InvalidPattern> {
        let kind = |letter| match letter {
            'I' => Ok(FrameKind::I),
            'P' => Ok(FrameKind::P),
            'B' => Ok(FrameKind::B),
            _ => Err(InvalidPattern),
        };
        if text.len() > GopPattern::MAX || !text.starts_with('I') {
            return Err(InvalidPattern);
        }
        text.chars().map(kind).collect::<Result<_, _>>().map(GopPattern)
    }
}

impl fmt::Display for GopPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|kind| write!(f, "{kind:?}"))
    }
}

/// Sets the sizes of dropped frames to zero: as many as the part `degradation` (D) of the GOP's bytes covers. B frames
/// go first, then P frames, each from the end, because no kept frame may depend on a dropped one; I frames stay.
///
/// The paper names M'_G and D without a formula. A P frame is dropped only if all B frames and all later P frames of
/// its I frame are gone, so the first frame that does not fit ends the loop.
pub(crate) fn degrade(sizes: &mut [u64], kinds: &[FrameKind], degradation: Fraction) {
    let mut left = degradation.part_of(sizes.iter().sum());
    for kind in [FrameKind::B, FrameKind::P] {
        for at in (0..sizes.len()).rev().filter(|at| kinds[*at] == kind) {
            if sizes[at] > left {
                return;
            }
            left -= std::mem::take(&mut sizes[at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degraded(text: &str, degradation: f64) -> Vec<u64> {
        let pattern: GopPattern = text.parse().unwrap();
        let size = |kind: &FrameKind| [20, 10, 4][*kind as usize];
        let mut sizes: Vec<u64> = pattern.kinds().iter().map(size).collect();
        degrade(&mut sizes, pattern.kinds(), Fraction::from_f64(degradation).unwrap());
        sizes
    }

    #[test]
    fn b_frames_are_dropped_before_p_frames_and_i_frames_never() {
        assert_eq!(degraded("IBBP", 0.0), [20, 4, 4, 10]);
        assert_eq!(degraded("IBBP", 0.15), [20, 4, 0, 10]);
        assert_eq!(degraded("IBBP", 0.3), [20, 0, 0, 10]);
        assert_eq!(degraded("IBBP", 1.0), [20, 0, 0, 0]);
    }

    #[test]
    fn a_pattern_begins_with_i_and_is_bounded() {
        assert_eq!("IBBP".parse::<GopPattern>().unwrap().to_string(), "IBBP");
        for nonsense in ["", "BBI", "IXP", "ibbp", "I B", &"I".repeat(257)] {
            assert!(nonsense.parse::<GopPattern>().is_err(), "{nonsense:?}");
        }
    }
}
