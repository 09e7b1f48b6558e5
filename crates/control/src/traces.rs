//! Recordings of real decoding, for tests and simulations: computation times and sizes of 600 frames each. The head
//! of each file tells how it was recorded. One line per frame: `c_ns bytes`; a `#` begins a comment.

/// H.264 1080p, groups of 12 frames, closed: the cost repeats with the group.
pub const H264_GROUPS: &str = include_str!("../traces/h264_gop12_1080.trace");
/// H.264 1080p with scene cuts and adaptive B frames: groups of any length.
pub const H264_MIXED: &str = include_str!("../traces/h264_mixed_1080.trace");
/// MPEG-2 1440p, IBBPBBPBBPBB.
pub const MPEG2: &str = include_str!("../traces/mpeg2_1440.trace");
