//! A series of frame sizes like that of an H.264 clip with closed groups of twelve pictures.

use qfabric_types::RandomNumbers;

use crate::FrameKind;

/// One frame of the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoFrame {
    pub kind: FrameKind,
    pub bytes: usize,
}

/// Frames in a group: one I frame and eleven P frames.
const GROUP: usize = 12;
/// The largest I frame of the clip.
const LARGEST: f64 = 286_000.0;

/// `count` frames whose mean rate at 25 frames per second is about 10.9 Mbit/s. I frames have 180 to 286 kB. P frames
/// have 20 to 75 kB, with a slow change as of a moving camera.
pub fn video(count: usize, seed: u64) -> Vec<VideoFrame> {
    let mut random = RandomNumbers::new(seed);
    let mut motion = 0.6;
    let mut frame = |index: usize| {
        motion = (motion + 0.3 * (random.uniform() - 0.5)).clamp(0.25, 1.0);
        if index.is_multiple_of(GROUP) {
            return VideoFrame { kind: FrameKind::I, bytes: (LARGEST * (0.63 + 0.37 * random.uniform())) as usize };
        }
        let bytes = 9_000.0 + 66_000.0 * motion * (0.7 + 0.3 * random.uniform());
        VideoFrame { kind: FrameKind::P, bytes: bytes as usize }
    };
    (0..count).map(&mut frame).collect()
}
