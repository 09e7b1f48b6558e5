//! Events of the example application `conference`, which come from other hosts.

use qfabric_conference::wire::{Feedback, FrameHeader, HEADER, MAX_FRAME};
use qfabric_conference::{Assembler, Level};

/// The input is a sequence of events, each with its length in two bytes before it. An event that is read is written
/// again as the same bytes, but for bits without a meaning. An assembler never holds more than the largest picture,
/// and a picture that it gives has the length that its header states.
pub fn conference(bytes: &[u8]) {
    let (mut rest, mut assembler, mut again) = (bytes, Assembler::default(), Vec::new());
    while let Some((length, more)) = rest.split_first_chunk::<2>() {
        let event;
        (event, rest) = more.split_at(usize::from(u16::from_le_bytes(*length)).min(more.len()));
        if let Ok(feedback) = Feedback::parse(event) {
            assert_eq!(Feedback::parse(&feedback.encode()), Ok(feedback));
        }
        if let Ok(level) = Level::parse(event) {
            assert_eq!(Level::parse(&level.encode()), Ok(level));
        }
        let Ok((header, data)) = FrameHeader::parse(event) else { continue };
        let range = header.range();
        assert_eq!((range.len(), HEADER + data.len()), (data.len(), event.len()));
        assert!(range.end <= header.bytes as usize);
        header.encode(&[], &mut again);
        assert_eq!(again[..26], event[..26], "the header was not kept");
        if let Some(frame) = assembler.push(header, data) {
            assert_eq!(frame.data.len(), header.bytes as usize);
        }
        assert!(assembler.held() <= MAX_FRAME, "{} bytes are held", assembler.held());
    }
}
