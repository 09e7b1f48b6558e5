//! The two standard events of Q-channels: `reading` (a monitoring event with a measurement) and `quality` (a
//! control event with a request). Little endian, fixed size, in the layout that C gives them; texts end with a zero
//! byte.

use crate::channel::Name;
use crate::format::{Field, Format, Kind, Scalar};
use crate::{AppId, Instant, Nanos};

use super::{AttributeId, Cause, MAX_NAME, Reading, Unit};

/// Bytes of a name in an event, including the zero byte at its end.
const TEXT: usize = MAX_NAME + 2;

/// An event with invalid content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a `{event}` event has {what}")]
pub struct BadEvent {
    /// `reading` or `quality`.
    pub event: &'static str,
    pub what: String,
}

/// A reading as it is sent, with the name of its attribute, so that every receiver can display it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadingEvent {
    /// The reading; its time is that of the sender's clock.
    pub reading: Reading,
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
    pub const SIZE: usize = 80;

    /// Encodes a reading. Allocates nothing. A name longer than [`MAX_NAME`] is cut.
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

    /// The attribute of an encoded reading; `None` if the bytes are too short.
    pub fn attribute_of(bytes: &[u8]) -> Option<AttributeId> {
        (bytes.len() >= Self::SIZE).then(|| AttributeId(word(bytes, 0)))
    }

    /// Whether an encoded reading is of an application's attribute, `app.*`.
    pub fn is_applications(bytes: &[u8]) -> bool {
        bytes.get(30..).is_some_and(|name| name.starts_with(b"app."))
    }

    /// Decodes a reading. Further bytes belong to a newer version and are ignored.
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

/// The meaning of a control event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum QualityKind {
    /// A meaning that the controller defines; `subject` distinguishes several.
    Own = 0,
    /// The source should send `value` events per second (0: none).
    Rate = 2,
    /// The receiver should work at the level `value`.
    Level = 3,
    /// The next report of the attribute named by `subject` should be sent later by `value` ns.
    Delay = 4,
    /// `value` of the attribute is wanted, and `other` is used now.
    Want = 8,
    /// `value` of the attribute is granted, of the wanted amount `other`.
    Grant = 9,
    /// `value` of the attribute is requested from any host that can give it, with `other` bytes of memory; `request`
    /// identifies the request.
    Request = 10,
    /// An offer of `value` for the request `request`; `other` bytes of memory are kept, too.
    Offer = 11,
    /// The offer for `request` is accepted.
    Accept = 12,
    /// The accepted offer for `request` is confirmed.
    Confirm = 13,
    /// The request `request` is withdrawn, or was satisfied by another host.
    Cancel = 14,
    /// A member of a group has `value` now, and has seen the same members for `other` nanoseconds.
    Achieved = 15,
    /// The request `request` is refused. Only hosts that know joint contracts send or read it.
    Refuse = 16,
}

impl QualityKind {
    pub const ALL: [QualityKind; 13] = [
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
        QualityKind::Refuse,
    ];

    fn of(number: u32) -> Option<QualityKind> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// A control event: a request of one controller to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QualityEvent {
    /// The number of the controller's name ([`AttributeId::of`]).
    pub controller: AttributeId,
    pub kind: QualityKind,
    /// The amount; its unit depends on `kind`.
    pub value: i64,
    /// A second number, for kinds that need one.
    pub other: i64,
    /// Connects a request with its offers and its end, or identifies a stream; the initiator chooses it.
    pub request: u64,
    /// The time of sending, by the sender's clock.
    pub at: Instant,
    /// The application that it concerns on the receiving host; [`super::HOST`]: any.
    pub application: AppId,
    /// The attribute that it concerns; number 0: none.
    pub attribute: AttributeId,
    /// A parameter or a stream that it concerns.
    pub subject: QualityText,
}

/// A short text inside an event: at most 47 bytes, without a zero byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QualityText {
    bytes: [u8; 48],
}

impl QualityText {
    pub const NONE: QualityText = QualityText { bytes: [0; 48] };

    /// A text; cut if it is too long.
    pub fn new(text: &str) -> QualityText {
        let mut bytes = [0; 48];
        put_text(&mut bytes, text);
        QualityText { bytes }
    }

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
    pub const SIZE: usize = 96;

    /// Encodes the event. Allocates nothing.
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

    /// Decodes an event. Further bytes belong to a newer version and are ignored.
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

/// A structure with these members: name, type, number of elements (0: no array).
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

/// Numbers of applications and time spans beyond 32 bits become the largest 32-bit number.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Copies as much of the text as leaves room for the zero byte at its end, whole characters only.
fn put_text(bytes: &mut [u8], text: &str) {
    let room = bytes.len() - 1;
    let length = text.find('\0').unwrap_or(text.len()).min(room);
    let end = (0..=length).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
}

/// The text before the first zero byte; empty if it is not UTF-8.
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
    fn the_formats_have_the_offsets_of_the_encoding() {
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
    fn an_encoded_reading_decodes_to_itself() {
        let event = ReadingEvent::decode(&ReadingEvent::encode(&reading(), "cpu.run_queue")).unwrap();
        assert_eq!((event.reading, event.name.as_str()), (reading(), "cpu.run_queue"));
    }

    #[test]
    fn an_invalid_reading_is_refused_with_the_reason() {
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
        assert!(ReadingEvent::decode(&longer).is_ok(), "a newer version has more bytes");
    }

    #[test]
    fn an_encoded_control_event_decodes_to_itself() {
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
    fn a_text_is_cut_at_a_whole_character() {
        assert_eq!(QualityText::new(&"ä".repeat(40)).as_str(), "ä".repeat(23));
        assert_eq!(QualityText::new("a\0b").as_str(), "a");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ReadingEvent::decode(&bytes);
            if let Ok(event) = QualityEvent::decode(&bytes) {
                prop_assert_eq!(QualityEvent::decode(&event.encode()), Ok(event));
            }
        }
    }
}
