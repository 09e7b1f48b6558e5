//! The two events of Q-channels that every resource manager knows: `reading` (a monitoring event: facts) and `quality`
//! (a control event: wishes). Little endian, fixed size, the layout that C gives them; texts end with a zero.

use crate::channel::Name;
use crate::format::{Field, Format, Kind, Scalar};
use crate::{AppId, Instant, Nanos};

use super::{AttributeId, Cause, MAX_NAME, Reading, Unit};

/// Bytes of a name in an event, the zero at its end included.
const TEXT: usize = MAX_NAME + 2;

/// An event that cannot be what it says it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a `{event}` event has {what}")]
pub struct BadEvent {
    /// `reading` or `quality`.
    pub event: &'static str,
    /// What is wrong with it.
    pub what: String,
}

/// A reading as it travels, with the name of its attribute, so that it can be shown wherever it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadingEvent {
    /// The reading; its time is of the sender's clock.
    pub reading: Reading,
    /// The attribute's name.
    pub name: Name,
}

/// ```c
/// struct reading {
///     unsigned int attribute;     // the name's number: 32-bit FNV-1a
///     unsigned int application;   // whose; 0: the host's
///     long value;                 // in the unit
///     unsigned long at_ns;        // when it was read, sender's clock
///     unsigned int over_us;       // the time it is over; 0: one moment
///     unsigned char cause;        // 0 poll, 1 crossed, 2 cleared, 3 asked
///     unsigned char unit;         // as in `Unit`
///     char name[50];
/// };
/// ```
pub fn reading_format() -> Format {
    layout(
        "reading",
        &[
            ("attribute", Scalar::U32, 0),
            ("application", Scalar::U32, 0),
            ("value", Scalar::I64, 0),
            ("at_ns", Scalar::U64, 0),
            ("over_us", Scalar::U32, 0),
            ("cause", Scalar::U8, 0),
            ("unit", Scalar::U8, 0),
            ("name", Scalar::I8, TEXT as u32),
        ],
    )
}

impl ReadingEvent {
    /// Bytes of an event.
    pub const SIZE: usize = 80;

    /// The bytes of a reading. Allocates nothing. A name longer than [`MAX_NAME`] is cut.
    pub fn encode(reading: &Reading, name: &str) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..4].copy_from_slice(&reading.attribute.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&small(reading.application.0).to_le_bytes());
        bytes[8..16].copy_from_slice(&reading.value.to_le_bytes());
        bytes[16..24].copy_from_slice(&reading.at.get().to_le_bytes());
        bytes[24..28].copy_from_slice(&small(reading.over.get() / 1_000).to_le_bytes());
        bytes[28] = reading.cause as u8;
        bytes[29] = reading.unit as u8;
        put_text(&mut bytes[30..], name);
        bytes
    }

    /// The attribute of the reading of these bytes.
    pub fn attribute_of(bytes: &[u8]) -> Option<AttributeId> {
        (bytes.len() >= Self::SIZE).then(|| AttributeId(word(bytes, 0)))
    }

    /// The reading of these bytes; more of them belong to a newer version and are left alone.
    pub fn decode(bytes: &[u8]) -> Result<ReadingEvent, BadEvent> {
        let bad = |what: String| BadEvent { event: "reading", what };
        let bytes = whole(bytes, Self::SIZE).map_err(bad)?;
        let name = text(&bytes[30..]).parse::<Name>().map_err(|why| bad(format!("no name: {why}")))?;
        let attribute = AttributeId(word(bytes, 0));
        if attribute != AttributeId::of(name.as_str()) {
            return Err(bad(format!("the number {attribute}, which is not that of {name}")));
        }
        let cause = *Cause::ALL.get(usize::from(bytes[28])).ok_or_else(|| bad(format!("the cause {}", bytes[28])))?;
        let unit = *Unit::ALL.get(usize::from(bytes[29])).ok_or_else(|| bad(format!("the unit {}", bytes[29])))?;
        let reading = Reading {
            attribute,
            application: AppId(word(bytes, 4).into()),
            value: long(bytes, 8) as i64,
            at: Instant::new(long(bytes, 16)),
            over: Nanos::from_micros(word(bytes, 24).into()),
            cause,
            unit,
        };
        Ok(ReadingEvent { reading, name })
    }
}

/// What a control event wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum QualityKind {
    /// A controller's own meaning; `subject` says which.
    Own = 0,
    /// The source is to send `value` events per second (0: none).
    Rate = 2,
    /// Work at the level `value`.
    Level = 3,
    /// The next report of the attribute, which `subject` names, is to be sent `value` ns later.
    Delay = 4,
    /// `value` of the attribute is wanted, `other` is used now.
    Want = 8,
    /// `value` of the attribute is granted, of the wanted `other`.
    Grant = 9,
    /// `value` of the attribute is wanted from whoever can give it; `request` names it.
    Request = 10,
    /// Request `request` can be met with `value`.
    Offer = 11,
    /// The offer for `request` is taken.
    Accept = 12,
    /// What was accepted for `request` stands.
    Confirm = 13,
    /// Request `request` is no longer wanted, or has been met elsewhere.
    Cancel = 14,
    /// A member of a group has `value` now, and has seen the same members for `other` nanoseconds.
    Achieved = 15,
}

impl QualityKind {
    /// Every kind.
    pub const ALL: [QualityKind; 12] = [
        QualityKind::Own,
        QualityKind::Rate,
        QualityKind::Level,
        QualityKind::Delay,
        QualityKind::Want,
        QualityKind::Grant,
        QualityKind::Request,
        QualityKind::Offer,
        QualityKind::Accept,
        QualityKind::Confirm,
        QualityKind::Cancel,
        QualityKind::Achieved,
    ];

    fn of(number: u32) -> Option<QualityKind> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// A control event: one controller asks others for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QualityEvent {
    /// Whose: the number of the controller's name ([`AttributeId::of`]).
    pub controller: AttributeId,
    /// What it wants.
    pub kind: QualityKind,
    /// How much.
    pub value: i64,
    /// A second number, where the kind needs one.
    pub other: i64,
    /// Ties a request, its offers and its end together, or names a stream; chosen by who begins.
    pub request: u64,
    /// When it was said, by the sender's clock.
    pub at: Instant,
    /// The application it concerns on the receiver's host; [`super::HOST`]: whichever.
    pub application: AppId,
    /// The attribute it is about; of number 0: none.
    pub attribute: AttributeId,
    /// What else it is about: a parameter, a stream.
    pub subject: QualityText,
}

/// A short text inside an event: at most 47 bytes, none of them zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QualityText {
    bytes: [u8; 48],
}

impl QualityText {
    /// No text.
    pub const NONE: QualityText = QualityText { bytes: [0; 48] };

    /// A text, cut to its room.
    pub fn new(text: &str) -> QualityText {
        let mut bytes = [0; 48];
        put_text(&mut bytes, text);
        QualityText { bytes }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        text(&self.bytes)
    }
}

impl std::fmt::Display for QualityText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::fmt::Debug for QualityText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_str(), f)
    }
}

/// ```c
/// struct quality {
///     unsigned int controller;    // the number of the controller's name
///     unsigned int kind;          // as in `QualityKind`
///     long value;
///     long other;
///     unsigned long request;
///     unsigned long at_ns;        // sender's clock
///     unsigned int application;   // 0: whichever
///     unsigned int attribute;     // the number of its name; 0: none
///     char subject[48];
/// };
/// ```
pub fn quality_format() -> Format {
    layout(
        "quality",
        &[
            ("controller", Scalar::U32, 0),
            ("kind", Scalar::U32, 0),
            ("value", Scalar::I64, 0),
            ("other", Scalar::I64, 0),
            ("request", Scalar::U64, 0),
            ("at_ns", Scalar::U64, 0),
            ("application", Scalar::U32, 0),
            ("attribute", Scalar::U32, 0),
            ("subject", Scalar::I8, 48),
        ],
    )
}

impl QualityEvent {
    /// Bytes of an event.
    pub const SIZE: usize = 96;

    /// Its bytes. Allocates nothing.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..4].copy_from_slice(&self.controller.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.value.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.other.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.request.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.at.get().to_le_bytes());
        bytes[40..44].copy_from_slice(&small(self.application.0).to_le_bytes());
        bytes[44..48].copy_from_slice(&self.attribute.0.to_le_bytes());
        bytes[48..].copy_from_slice(&self.subject.bytes);
        bytes
    }

    /// The event of these bytes; more of them belong to a newer version and are left alone.
    pub fn decode(bytes: &[u8]) -> Result<QualityEvent, BadEvent> {
        let bad = |what: String| BadEvent { event: "quality", what };
        let bytes = whole(bytes, Self::SIZE).map_err(bad)?;
        let kind = word(bytes, 4);
        Ok(QualityEvent {
            controller: AttributeId(word(bytes, 0)),
            kind: QualityKind::of(kind).ok_or_else(|| bad(format!("the kind {kind}")))?,
            value: long(bytes, 8) as i64,
            other: long(bytes, 16) as i64,
            request: long(bytes, 24),
            at: Instant::new(long(bytes, 32)),
            application: AppId(word(bytes, 40).into()),
            attribute: AttributeId(word(bytes, 44)),
            subject: QualityText::new(text(&bytes[48..])),
        })
    }
}

/// A structure of these members (name, type, elements or 0).
fn layout(name: &str, members: &[(&str, Scalar, u32)]) -> Format {
    let mut format = Format { name: name.to_owned(), size: 0, align: 8, fields: Vec::new() };
    for (name, scalar, count) in members {
        let dims = if *count == 0 { Vec::new() } else { vec![*count] };
        let offset = format.size.next_multiple_of(scalar.bytes());
        format.fields.push(Field { name: (*name).to_owned(), offset, kind: Kind::Scalar(*scalar), dims });
        format.size = offset + scalar.bytes() * count.max(&1);
    }
    format.size = format.size.next_multiple_of(8);
    format
}

/// Numbers of applications and lengths of time beyond 32 bits are shown as the largest.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// As much of a text as leaves room for the zero at its end, whole letters only.
fn put_text(bytes: &mut [u8], text: &str) {
    let room = bytes.len() - 1;
    let length = text.find('\0').unwrap_or(text.len()).min(room);
    let end = (0..=length).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
}

/// Up to the first zero; what is no text reads as none.
fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or_default()
}

fn whole(bytes: &[u8], size: usize) -> Result<&[u8], String> {
    bytes.get(..size).ok_or_else(|| format!("{} bytes instead of {size}", bytes.len()))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event_json;

    fn reading() -> Reading {
        Reading {
            attribute: AttributeId::of("cpu.run_queue"),
            application: AppId(7),
            value: -5,
            at: Instant::new(123_456_789_000),
            over: Nanos::from_millis(20),
            cause: Cause::Crossed,
            unit: Unit::Count,
        }
    }

    #[test]
    fn the_formats_say_where_the_members_lie() {
        let (reading_layout, quality_layout) = (reading_format(), quality_format());
        reading_layout.validate().unwrap();
        quality_layout.validate().unwrap();
        assert_eq!(reading_layout.size as usize, ReadingEvent::SIZE);
        assert_eq!(quality_layout.size as usize, QualityEvent::SIZE);
        let bytes = ReadingEvent::encode(&reading(), "cpu.run_queue");
        let shown = event_json::decode(&reading_layout, &bytes);
        assert_eq!((&shown["value"], &shown["over_us"], &shown["cause"]), (&(-5).into(), &20_000.into(), &1.into()));
        assert_eq!(shown["name"][0], i64::from(b'c'));
    }

    #[test]
    fn a_reading_arrives_as_it_was_sent() {
        let event = ReadingEvent::decode(&ReadingEvent::encode(&reading(), "cpu.run_queue")).unwrap();
        assert_eq!((event.reading, event.name.as_str()), (reading(), "cpu.run_queue"));
    }

    #[test]
    fn what_cannot_be_a_reading_is_refused_with_what_is_wrong() {
        let good = ReadingEvent::encode(&reading(), "cpu.run_queue");
        let spoilt = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            ReadingEvent::decode(&bytes).unwrap_err().to_string()
        };
        assert_eq!(
            ReadingEvent::decode(&good[..79]).unwrap_err().to_string(),
            "a `reading` event has 79 bytes instead of 80"
        );
        assert!(spoilt(0, 1).contains("not that of cpu.run_queue"));
        assert!(spoilt(28, 9).contains("the cause 9"));
        assert!(spoilt(29, 99).contains("the unit 99"));
        assert!(spoilt(30, 0xff).contains("no name"));
        let longer = [&good[..], &[1, 2, 3]].concat();
        assert!(ReadingEvent::decode(&longer).is_ok(), "a newer version has more");
    }

    #[test]
    fn a_control_event_arrives_as_it_was_sent() {
        let event = QualityEvent {
            controller: AttributeId::of("balance"),
            kind: QualityKind::Request,
            value: 20,
            other: -1,
            request: u64::MAX,
            at: Instant::new(5),
            application: AppId(3),
            attribute: AttributeId::of("cpu.run_queue"),
            subject: QualityText::new("left camera"),
        };
        assert_eq!(QualityEvent::decode(&event.encode()), Ok(event));
        let mut unknown = event.encode();
        unknown[4] = 200;
        assert!(QualityEvent::decode(&unknown).unwrap_err().to_string().contains("the kind 200"));
        assert!(QualityKind::ALL.into_iter().all(|kind| QualityKind::of(kind as u32) == Some(kind)));
    }

    #[test]
    fn a_text_is_cut_at_a_whole_letter() {
        assert_eq!(QualityText::new(&"ä".repeat(40)).as_str(), "ä".repeat(23));
        assert_eq!(QualityText::new("a\0b").as_str(), "a");
    }

    proptest! {
        #[test]
        fn bytes_from_anywhere_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ReadingEvent::decode(&bytes);
            if let Ok(event) = QualityEvent::decode(&bytes) {
                prop_assert_eq!(QualityEvent::decode(&event.encode()), Ok(event));
            }
        }
    }
}
