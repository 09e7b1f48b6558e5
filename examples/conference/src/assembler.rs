//! Joins the parts of pictures. A channel keeps the order of a source's events, so a part that is not the next one
//! means that the picture is lost. At most one picture is in assembly.

use crate::wire::FrameHeader;

/// A whole picture as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The header of its last part.
    pub header: FrameHeader,
    /// The coded picture.
    pub data: Vec<u8>,
}

/// The parts of one stream's pictures.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    partial: Option<Frame>,
    /// The last whole picture: its stream and its number.
    last: Option<(u32, u32)>,
    lost: u64,
}

impl Assembler {
    /// Takes a part; gives the picture if it was the last one. A picture whose number is not above the last one's is
    /// dropped. A new stream begins anew.
    pub fn push(&mut self, header: FrameHeader, data: &[u8]) -> Option<Frame> {
        if self.last.is_some_and(|(stream, number)| stream == header.stream && number >= header.number) {
            return None;
        }
        self.partial = match self.partial.take().filter(|partial| continues(&partial.header, &header)) {
            Some(Frame { data: mut before, .. }) => {
                before.extend_from_slice(data);
                Some(Frame { header, data: before })
            }
            None => (header.part == 0).then(|| Frame { header, data: data.to_vec() }),
        };
        let frame = self.partial.take_if(|partial| partial.header.part + 1 == partial.header.parts)?;
        if let Some((_, number)) = self.last.filter(|(stream, _)| *stream == header.stream) {
            self.lost += u64::from(header.number - number - 1);
        }
        self.last = Some((header.stream, header.number));
        Some(frame)
    }

    /// Pictures that did not arrive, by the numbers of those that did.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes of the picture in assembly.
    pub fn held(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.data.len())
    }
}

fn continues(before: &FrameHeader, header: &FrameHeader) -> bool {
    FrameHeader { part: before.part + 1, ..*before } == *header
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::Instant;

    fn part(stream: u32, number: u32, part: u16, parts: u16) -> FrameHeader {
        let setting = "jpeg:60:small".parse().unwrap();
        let (sent, bytes, level, generated) = (0, 10, 0, Instant::ZERO);
        FrameHeader { stream, number, sent, bytes, part, parts, setting, key: true, level, generated }
    }

    #[test]
    fn a_picture_without_all_its_parts_is_lost_and_counted() {
        let mut assembler = Assembler::default();
        let mut whole = |header| assembler.push(header, &[1]).is_some();
        assert!(whole(part(1, 1, 0, 1)));
        assert!(!whole(part(1, 2, 0, 3)) && !whole(part(1, 2, 2, 3)), "part 1 is missing");
        assert!(!whole(part(1, 3, 1, 2)), "part 0 is missing");
        assert!(!whole(part(1, 4, 0, 2)) && whole(part(1, 4, 1, 2)));
        assert_eq!((assembler.lost(), assembler.held()), (2, 0));
    }

    #[test]
    fn old_and_repeated_numbers_are_dropped_and_a_new_stream_begins_anew() {
        let mut assembler = Assembler::default();
        assert!(assembler.push(part(1, 900, 0, 1), &[1]).is_some());
        assert!(assembler.push(part(1, 900, 0, 1), &[1]).is_none() && assembler.push(part(1, 3, 0, 1), &[1]).is_none());
        assert!(assembler.push(part(2, 3, 0, 1), &[1]).is_some());
        assert_eq!(assembler.lost(), 0);
    }
}
