//! Formats of the conference's events. Everything read here comes from other hosts: no length, number or size is
//! believed before it is checked, and no memory is taken for a size that only a header states.

use qfabric_types::Instant;
use qfabric_types::channel_wire::MAX_PAYLOAD;

use crate::level::{Codec, InvalidLevel, Level, Size};

/// The events of the channel of frames. The picture's data, or a part of it, follows the structure.
pub const FRAMES: &str = "struct frame { unsigned int stream; int number; int sent; int bytes; short part; short parts; \
    short width; short height; unsigned char codec; unsigned char quality; unsigned char key; unsigned char reserved; \
    int level; long generated_ns; };";
/// The events of the channel NAME.talk: what receivers report, and levels that somebody wants.
pub const TALK: &str = "struct feedback { unsigned int stream; unsigned int receiver; int generated; int sent; \
    int arrived; int decoded; int shown; int jitter_us; int lost; int missing; int want_key; int level; \
    long least_delay_ns; }; struct level { int codec; int quality; int width; int height; };";

/// Length of `struct frame`.
pub const HEADER: usize = 40;
/// Largest picture in bytes; a JPEG of 1920x1080 in the best quality has half of it.
pub const MAX_FRAME: usize = 4 << 20;
/// Largest number of events of one picture.
pub const MAX_PARTS: u16 = 512;
/// Least and largest length of an event's data: [`FrameHeader::split`].
pub const FRAGMENT: std::ops::RangeInclusive<usize> = (16 << 10) - HEADER..=MAX_PAYLOAD - HEADER;

const FEEDBACK: usize = 56;
/// In the place of a delay: no picture arrived.
const NO_DELAY: i64 = i64::MIN;
const LEVEL: usize = 16;

/// An event that is not what its format says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEvent {
    /// Its length does not fit.
    #[error("an event of {0} bytes, which does not fit its header")]
    Length(usize),
    /// Its parts do not fit.
    #[error("part {part} of {parts} of a picture of {bytes} bytes; at most {MAX_PARTS} parts and {MAX_FRAME} bytes")]
    Parts {
        /// Number of the part.
        part: u16,
        /// How many there are.
        parts: u16,
        /// Length of the picture.
        bytes: u32,
    },
    /// No codec has this number.
    #[error("codec {0} is unknown here; install the same version on all hosts")]
    Codec(u8),
    /// Its level does not exist.
    #[error(transparent)]
    Level(#[from] InvalidLevel),
}

/// What precedes the data of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Distinguishes the runs of servers; picture numbers begin again with each.
    pub stream: u32,
    /// Number of the picture in its stream: how many were generated before.
    pub number: u32,
    /// How many pictures of the stream were sent before.
    pub sent: u32,
    /// Length of the picture's data in all its parts.
    pub bytes: u32,
    /// Number of this part.
    pub part: u16,
    /// How many parts the picture has.
    pub parts: u16,
    /// How it is coded.
    pub setting: Level,
    /// Whether it can be decoded without earlier pictures.
    pub key: bool,
    /// How often the stream's level has changed before.
    pub level: u32,
    /// When the picture was captured, by the server's clock.
    pub generated: Instant,
}

impl FrameHeader {
    /// Number of parts of a picture of `bytes` bytes, if no part has more than `fragment` ([`FRAGMENT`]).
    pub fn split(bytes: usize, fragment: usize) -> Option<u16> {
        let fragment = fragment.clamp(*FRAGMENT.start(), *FRAGMENT.end());
        let parts = bytes.div_ceil(fragment);
        (1..=MAX_FRAME).contains(&bytes).then_some(parts as u16).filter(|parts| *parts <= MAX_PARTS)
    }

    /// The bytes of the picture that belong to the header's part: all parts but the last have the same length.
    pub fn range(&self) -> std::ops::Range<usize> {
        let bytes = self.bytes as usize;
        let each = bytes.div_ceil(usize::from(self.parts.max(1)));
        let begin = (each * usize::from(self.part)).min(bytes);
        begin..(begin + each).min(bytes)
    }

    /// Writes the header and this part of `picture` over `event`.
    pub fn encode(&self, picture: &[u8], event: &mut Vec<u8>) {
        event.clear();
        for word in [self.stream, self.number, self.sent, self.bytes] {
            event.extend_from_slice(&word.to_le_bytes());
        }
        let size = self.setting.size();
        for word in [self.part, self.parts, size.width(), size.height()] {
            event.extend_from_slice(&word.to_le_bytes());
        }
        event.extend_from_slice(&[self.setting.codec().number(), self.setting.quality(), u8::from(self.key), 0]);
        event.extend_from_slice(&self.level.to_le_bytes());
        event.extend_from_slice(&self.generated.get().to_le_bytes());
        event.extend_from_slice(picture.get(self.range()).unwrap_or_default());
    }

    /// Reads an event: its header, and the part of the picture, whose length is the one that the header states.
    ///
    /// # Errors
    /// The event is shorter or longer than its header says, or it states a codec, a size or a number of parts that
    /// does not exist.
    pub fn parse(event: &[u8]) -> Result<(FrameHeader, &[u8]), BadEvent> {
        let (head, data) = event.split_at_checked(HEADER).ok_or(BadEvent::Length(event.len()))?;
        let codec = Codec::from_number(head[24]).ok_or(BadEvent::Codec(head[24]))?;
        let size = Size::new(short(head, 20), short(head, 22))?;
        let header = FrameHeader {
            stream: word(head, 0),
            number: word(head, 4),
            sent: word(head, 8),
            bytes: word(head, 12),
            part: short(head, 16),
            parts: short(head, 18),
            setting: Level::new(codec, head[25], size)?,
            key: head[26] != 0,
            level: word(head, 28),
            generated: Instant::new(u64::from(word(head, 36)) << 32 | u64::from(word(head, 32))),
        };
        let FrameHeader { part, parts, bytes, .. } = header;
        let known = part < parts && parts <= MAX_PARTS && (1..=MAX_FRAME).contains(&(bytes as usize));
        if !known || header.range().is_empty() {
            return Err(BadEvent::Parts { part, parts, bytes });
        }
        if header.range().len() != data.len() {
            return Err(BadEvent::Length(event.len()));
        }
        Ok((header, data))
    }
}

/// What a receiver tells once per second. Rates in thousandths of a frame per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "media", derive(serde::Serialize))]
pub struct Feedback {
    /// The stream that it receives.
    pub stream: u32,
    /// Distinguishes the receivers of a host.
    pub receiver: u32,
    /// Pictures that the server generated, as far as this receiver knows by their numbers.
    pub generated: u32,
    /// Pictures that the server sent.
    pub sent: u32,
    /// Pictures of which all parts have arrived.
    pub arrived: u32,
    /// Pictures that were decoded.
    pub decoded: u32,
    /// Pictures that were shown.
    pub shown: u32,
    /// 99th percentile of the difference between two pictures' distance and the period, in microseconds.
    pub jitter_us: u32,
    /// Pictures that did not arrive, since the receiver's start.
    pub lost: u32,
    /// Codecs that it cannot decode: a sum of [`Codec::bit`].
    pub missing: u32,
    /// Whether it waits for a picture that it can decode by itself.
    pub want_key: bool,
    /// The level of the last picture that was shown: [`FrameHeader::level`].
    pub level: u32,
    /// The least time from a picture's generation to its arrival in the last second, in nanoseconds. It contains the difference
    /// of the clocks. None: no picture arrived.
    pub least_delay_ns: Option<i64>,
}

impl Feedback {
    /// As an event.
    pub fn encode(&self) -> [u8; FEEDBACK] {
        let mut event = [0; FEEDBACK];
        let words = [self.stream, self.receiver, self.generated, self.sent, self.arrived, self.decoded, self.shown];
        let more = [self.jitter_us, self.lost, self.missing, u32::from(self.want_key), self.level];
        for (at, value) in event.chunks_exact_mut(4).zip(words.into_iter().chain(more)) {
            at.copy_from_slice(&value.to_le_bytes());
        }
        event[48..].copy_from_slice(&self.least_delay_ns.unwrap_or(NO_DELAY).to_le_bytes());
        event
    }

    /// Reads an event. Rates above 1000 frames per second and other nonsense are possible: they are claims of a receiver.
    pub fn parse(event: &[u8]) -> Result<Feedback, BadEvent> {
        if event.len() != FEEDBACK {
            return Err(BadEvent::Length(event.len()));
        }
        let value = |number: usize| word(event, 4 * number);
        let delay = (u64::from(value(13)) << 32 | u64::from(value(12))).cast_signed();
        Ok(Feedback {
            stream: value(0),
            receiver: value(1),
            generated: value(2),
            sent: value(3),
            arrived: value(4),
            decoded: value(5),
            shown: value(6),
            jitter_us: value(7),
            lost: value(8),
            missing: value(9),
            want_key: value(10) != 0,
            level: value(11),
            least_delay_ns: Some(delay).filter(|delay| *delay != NO_DELAY),
        })
    }
}

impl Level {
    /// As an event `level`.
    pub fn encode(self) -> [u8; LEVEL] {
        let words = [self.codec().number().into(), self.quality().into(), self.size().width(), self.size().height()];
        let mut event = [0; LEVEL];
        for (at, value) in event.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&u32::from(value).to_le_bytes());
        }
        event
    }

    /// Reads an event `level`.
    pub fn parse(event: &[u8]) -> Result<Level, BadEvent> {
        if event.len() != LEVEL {
            return Err(BadEvent::Length(event.len()));
        }
        let [codec, quality, width, height] = [0, 4, 8, 12].map(|at| word(event, at));
        let narrow = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        let codec = u8::try_from(codec).unwrap_or(u8::MAX);
        let codec = Codec::from_number(codec).ok_or(BadEvent::Codec(codec))?;
        let size = Size::new(narrow(width), narrow(height))?;
        Ok(Level::new(codec, u8::try_from(quality).unwrap_or(u8::MAX), size)?)
    }
}

/// The word at `at`; 0 beyond the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|part| part.try_into().ok()).map_or(0, u16::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Assembler;
    use proptest::prelude::*;

    fn header(number: u32, bytes: usize, fragment: usize) -> FrameHeader {
        let setting = Level::new(Codec::Jpeg, 60, Size::LARGE).unwrap();
        let parts = FrameHeader::split(bytes, fragment).unwrap();
        let (stream, sent, part, level, generated) = (7, number, 0, 2, Instant::new(u64::MAX - 5));
        FrameHeader { stream, number, sent, bytes: bytes as u32, part, parts, setting, key: true, level, generated }
    }

    proptest! {
        #[test]
        fn a_picture_is_read_from_its_parts_as_it_was_sent(
            bytes in 1..200_000usize, fragment in prop::sample::select(vec![0, 16_344, 40_000, 1 << 20]), seed: u8,
        ) {
            let picture: Vec<u8> = (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
            let (mut header, mut assembler, mut event) = (header(3, bytes, fragment), Assembler::default(), Vec::new());
            for part in 0..header.parts {
                header.part = part;
                header.encode(&picture, &mut event);
                prop_assert!(event.len() - HEADER <= fragment.clamp(*FRAGMENT.start(), *FRAGMENT.end()));
                let (read, data) = FrameHeader::parse(&event).unwrap();
                prop_assert_eq!(read, header);
                let frame = assembler.push(read, data);
                prop_assert_eq!(frame.map(|frame| frame.data), (part + 1 == header.parts).then(|| picture.clone()));
            }
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_are_what_they_state(event in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((header, data)) = FrameHeader::parse(&event) {
                let mut again = Vec::new();
                let mut picture = vec![0; header.range().start];
                picture.extend_from_slice(data);
                header.encode(&picture, &mut again);
                prop_assert_eq!(&FrameHeader::parse(&again).unwrap(), &(header, data));
            }
            let _ = (Feedback::parse(&event), Level::parse(&event));
        }

        #[test]
        fn what_receivers_say_is_read_as_it_was_written(words: [u32; 11], want_key: bool, delay: i64) {
            let [stream, receiver, generated, sent, arrived, decoded, shown, jitter_us, lost, missing, level] = words;
            let least_delay_ns = Some(delay).filter(|delay| *delay != NO_DELAY);
            let said = Feedback {
                stream, receiver, generated, sent, arrived, decoded, shown, jitter_us, lost, missing, want_key, level,
                least_delay_ns,
            };
            prop_assert_eq!(Feedback::parse(&said.encode()), Ok(said));
        }
    }

    #[test]
    fn a_header_that_states_what_does_not_exist_is_refused() {
        let mut event = Vec::new();
        header(1, 100, 0).encode(&[5; 100], &mut event);
        let with = |at: usize, value: u8| {
            let mut event = event.clone();
            event[at] = value;
            FrameHeader::parse(&event).unwrap_err()
        };
        assert_eq!(with(24, 9), BadEvent::Codec(9));
        assert!(matches!(with(25, 96), BadEvent::Level(_)) && matches!(with(21, 255), BadEvent::Level(_)));
        assert!(
            matches!(with(16, 1), BadEvent::Parts { part: 1, .. }) && matches!(with(15, 1), BadEvent::Parts { .. })
        );
        assert!(matches!(with(12, 99), BadEvent::Length(_)) && matches!(with(12, 101), BadEvent::Length(_)));
        assert_eq!(FrameHeader::parse(&event[..HEADER - 1]), Err(BadEvent::Length(HEADER - 1)));
        assert_eq!((FrameHeader::split(0, 0), FrameHeader::split(MAX_FRAME + 1, 1 << 20)), (None, None));
        assert!(FrameHeader::split(MAX_FRAME, 0).is_some());
    }

    #[test]
    fn a_level_is_read_as_it_was_written_and_a_wrong_one_is_refused() {
        let level = Level::new(Codec::H264, 30, Size::LARGEST).unwrap();
        assert_eq!(Level::parse(&level.encode()), Ok(level));
        let mut wrong = level.encode();
        wrong[6] = 1; // quality 65,566
        assert!(Level::parse(&wrong).is_err() && Level::parse(&wrong[..15]).is_err());
    }

    #[test]
    fn the_lengths_are_those_of_the_formats() {
        for (text, name, bytes) in [(FRAMES, "frame", HEADER), (TALK, "feedback", FEEDBACK), (TALK, "level", LEVEL)] {
            assert!(text.contains(&format!("struct {name} {{")) && bytes.is_multiple_of(8));
        }
    }
}
