//! The frames of one medium at one quality.

use qfabric_types::Nanos;

use crate::pattern::degrade;
use crate::stream::{Medium, Quality, Stream};

/// The frames (APDUs) of one group: a GOP of video, or one block of sound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flow {
    pub medium: Medium,
    /// T = 1/R_A.
    pub period: Nanos,
    /// The longest T of the acceptable region.
    pub longest_period: Nanos,
    /// Bytes of each frame of the group (M_A).
    pub original: Vec<u64>,
    /// Bytes of each frame after degradation; zero for a dropped frame.
    pub kept: Vec<u64>,
}

impl Flow {
    /// The flow of `medium` at `quality`; `None` if the stream or the quality lacks the medium.
    pub(crate) fn of(stream: &Stream, quality: &Quality, medium: Medium) -> Option<Flow> {
        let longest_period = stream.longest_period(medium);
        match medium {
            Medium::Video => {
                let (video, rate) = (stream.video.as_ref()?, quality.frame_rate?);
                let kinds = video.pattern.kinds();
                let original: Vec<u64> = kinds.iter().map(|kind| video.sizes[*kind as usize].get()).collect();
                let mut kept = original.clone();
                degrade(&mut kept, kinds, quality.degradation);
                Some(Flow { medium, period: rate.period(), longest_period, original, kept })
            }
            Medium::Sound => {
                let (sound, rate) = (stream.sound.as_ref()?, quality.sample_rate?);
                let original = vec![samples_of_block(rate, sound.block) * sound.sample_size.get()];
                Some(Flow { medium, period: sound.block, longest_period, kept: original.clone(), original })
            }
        }
    }

    /// M_G: bytes of the group as the source makes it.
    pub(crate) fn group_size(&self) -> u64 {
        self.original.iter().sum()
    }
    /// M'_G: bytes of the group that are sent and processed.
    pub(crate) fn processing_size(&self) -> u64 {
        self.kept.iter().sum()
    }
    pub(crate) fn largest_frame(&self) -> u64 {
        self.kept.iter().copied().max().unwrap_or(0)
    }
    /// The time in which the source makes one group: G·T.
    pub(crate) fn group_time(&self) -> Nanos {
        self.period.saturating_mul(self.original.len() as u64)
    }
}

/// Samples of a block, rounded up.
pub(crate) fn samples_of_block(sample_rate: u64, block: Nanos) -> u64 {
    (sample_rate as u128 * block.get() as u128).div_ceil(1_000_000_000) as u64
}
