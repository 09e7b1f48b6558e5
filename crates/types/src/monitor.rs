//! Monitoring: attributes, their units and thresholds, and the events that carry readings between hosts.
//!
//! An *attribute* is one number about a host or an application: `cpu.run_queue`, `net.eth0.rx_bytes`. [`METRICS`]
//! lists the standard ones; others can be added. Between hosts an attribute is identified by a number computed from
//! its name ([`AttributeId`]), which is the same everywhere and needs no central registry.
//!
//! A reader returns a *raw* number: a level, or a total that is counted all the time. The attribute's [`Shape`]
//! determines the value that a watcher receives. A total loses no change between two looks: such attributes are the
//! *active* monitors of Q-Fabric (§2.2); levels are the *passive* ones.

mod events;
mod metrics;
mod threshold;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::channel::Name;
use crate::{AppId, Instant, Nanos};

pub use events::{BadEvent, QualityEvent, QualityKind, QualityText, ReadingEvent, quality_format, reading_format};
pub use metrics::{METRICS, Metric, constants};
pub use threshold::{InvalidThreshold, Threshold};

/// Largest number of bytes of an attribute's name: `net.`, 15 bytes of an interface, the longest metric, and a reserve.
pub const MAX_NAME: usize = 48;

/// The identity of an attribute, the same on every host: the 32-bit FNV-1a hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttributeId(pub u32);

impl AttributeId {
    pub const fn of(name: &str) -> AttributeId {
        let bytes = name.as_bytes();
        let mut hash: u32 = 0x811c_9dc5;
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        AttributeId(hash)
    }

    /// The Q-attribute by which a sink on a Q-channel says that it needs the readings of this attribute, with any
    /// value. Without it a sink of an application receives no readings of `app.*`.
    pub fn key(self) -> String {
        format!("reading_{:08x}", self.0)
    }
}

impl fmt::Display for AttributeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// The way in which several looks between two readings become one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Summary {
    /// The last level; of a total, the change since the last reading.
    #[default]
    Last,
    /// The mean of the looks; of a total, the mean over all the time since the last reading.
    Mean,
    /// The least look.
    Min,
    /// The greatest look.
    Max,
}

/// A period that is adapted by feedback: it is halved when a value differs from the previous one by more than
/// `tolerance`, and otherwise grows by a quarter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AdaptivePeriod {
    /// Shortest period, at least 1 ms.
    pub least_ns: Nanos,
    /// Longest period, at most 1 h.
    pub most_ns: Nanos,
    /// Differences up to this, in the attribute's unit, count as no change.
    #[serde(default)]
    pub tolerance: u64,
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Unit {
    /// Number of threads, packets, faults and so on.
    Count = 0,
    /// Bytes.
    Bytes = 1,
    /// Number per second.
    PerSecond = 2,
    /// Bytes per second.
    BytesPerSecond = 3,
    /// Millionths of a whole, such as of the time or of all CPUs.
    Millionths = 4,
    /// Nanoseconds.
    Nanoseconds = 5,
    /// Microjoules.
    Microjoules = 6,
    /// Microwatts.
    Microwatts = 7,
    /// Thousandths of a degree Celsius.
    Millidegrees = 8,
}

impl Unit {
    /// All units, in the order of their numbers.
    pub const ALL: [Unit; 9] = [
        Unit::Count,
        Unit::Bytes,
        Unit::PerSecond,
        Unit::BytesPerSecond,
        Unit::Millionths,
        Unit::Nanoseconds,
        Unit::Microjoules,
        Unit::Microwatts,
        Unit::Millidegrees,
    ];

    /// The symbol after a number, such as ` B/s`; empty for counts.
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Bytes => " B",
            Unit::PerSecond => " /s",
            Unit::BytesPerSecond => " B/s",
            Unit::Millionths => " ppm",
            Unit::Nanoseconds => " ns",
            Unit::Microjoules => " µJ",
            Unit::Microwatts => " µW",
            Unit::Millidegrees => " m°C",
        }
    }

    /// Formats a value of this unit for people: `41.5 %`, `3.2 MB/s`.
    pub fn show(self, value: i64) -> String {
        let v = value as f64;
        match self {
            Unit::Count => value.to_string(),
            Unit::Millionths => format!("{} %", short(v / 1e4)),
            Unit::Nanoseconds => match u64::try_from(value) {
                Ok(ns) => Nanos::new(ns).to_string(),
                Err(_) => format!("-{}", Nanos::new(value.unsigned_abs())),
            },
            Unit::Millidegrees => format!("{} °C", short(v / 1e3)),
            Unit::Microjoules => scaled(v * 1e-6, "J"),
            Unit::Microwatts => scaled(v * 1e-6, "W"),
            Unit::Bytes => scaled(v, "B"),
            Unit::BytesPerSecond => scaled(v, "B/s"),
            Unit::PerSecond => scaled(v, "/s"),
        }
    }
}

/// Formats with a decimal prefix and three significant digits.
fn scaled(value: f64, unit: &str) -> String {
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
    let (scale, prefix) = steps.into_iter().find(|(scale, _)| value.abs() >= *scale).unwrap_or((1.0, ""));
    format!("{} {prefix}{unit}", short(value / scale))
}

fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The way in which a value is computed from raw numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// The raw number is the present value (a passive monitor).
    Level,
    /// The raw number is a total; the value is the increase since the last look.
    Sum,
    /// The raw number is a total; the value is the increase per second since the last look.
    PerSecond,
    /// The raw number is a total in nanoseconds; the value is the increase as a part of the time since the last
    /// look, in millionths.
    Part,
}

impl Shape {
    /// The value from two raw numbers `before` and `now`, read `over` apart. A total that decreased (its device was
    /// created again) counts as no increase.
    pub fn value(self, before: i64, now: i64, over: Nanos) -> i64 {
        let came = i128::from(now.wrapping_sub(before).max(0));
        let per = |scale: i128| clamp(came * scale / i128::from(over.get().max(1)));
        match self {
            Shape::Level => now,
            Shape::Sum => clamp(came),
            Shape::PerSecond => per(1_000_000_000),
            Shape::Part => per(1_000_000),
        }
    }

    /// Whether raw numbers are totals.
    pub const fn is_total(self) -> bool {
        !matches!(self, Shape::Level)
    }
}

fn clamp(value: i128) -> i64 {
    value.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// An attribute that can be watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// At most [`MAX_NAME`] bytes.
    pub name: Name,
    pub unit: Unit,
    pub shape: Shape,
}

impl Attribute {
    pub fn new(name: &str, unit: Unit, shape: Shape) -> Result<Attribute, NoAttribute> {
        let refused = |why: String| NoAttribute { name: name.chars().take(2 * MAX_NAME).collect(), why };
        if name.len() > MAX_NAME {
            return Err(refused(format!("it has {} bytes, the limit is {MAX_NAME}", name.len())));
        }
        Ok(Attribute { name: name.parse().map_err(|why| refused(format!("{why}")))?, unit, shape })
    }

    pub fn id(&self) -> AttributeId {
        AttributeId::of(self.name.as_str())
    }

    /// Whether the attribute belongs to an application instead of the host: its name begins with `app.`.
    pub fn is_of_application(&self) -> bool {
        self.name.as_str().starts_with("app.")
    }
}

/// A name is not valid for an attribute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be an attribute's name: {why}")]
pub struct NoAttribute {
    pub name: String,
    pub why: String,
}

/// The reason why a reading is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Cause {
    /// The watch's period ended.
    Poll = 0,
    /// The value crossed its threshold.
    Crossed = 1,
    /// The value returned to the other side of the threshold, and is at least the hysteresis away from it.
    Cleared = 2,
    /// An application requested it.
    Asked = 3,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Cause; 4] = [Cause::Poll, Cause::Crossed, Cause::Cleared, Cause::Asked];
}

/// The application number of watchers that belong to the host itself.
pub const HOST: AppId = AppId(0);

/// A monitoring event: a value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub attribute: AttributeId,
    /// The watching application; for attributes of applications, the application the value is about. [`HOST`]
    /// stands for none.
    pub application: AppId,
    /// In the attribute's unit.
    pub value: i64,
    /// The time of the look.
    pub at: Instant,
    /// The time span of the value; zero for a level.
    pub over: Nanos,
    /// The reason why it is sent.
    pub cause: Cause,
    pub unit: Unit,
}

/// A source of raw numbers: the kernel, a host itself, a simulated machine.
pub trait Readers {
    /// The attributes that can be read now; the list may change, for example when an interface appears.
    fn attributes(&self) -> &[Attribute];

    /// The raw number of an attribute: its level, or its total. `application` matters only for attributes of
    /// applications. `None`: it cannot be read now, or not for this application. Calls with the same `now` may be
    /// answered from one look at the system.
    fn read(&mut self, attribute: AttributeId, application: AppId, now: Instant) -> Option<i64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_same_number_everywhere() {
        assert_eq!(AttributeId::of(""), AttributeId(0x811c_9dc5));
        assert_eq!(AttributeId::of("a"), AttributeId(0xe40c_292c), "the published test values of FNV-1a");
        assert_eq!(AttributeId::of("foobar"), AttributeId(0xbf9c_f968));
    }

    #[test]
    fn totals_are_converted_to_sums_rates_and_parts_of_the_time() {
        let second = Nanos::from_millis(1_000);
        assert_eq!(Shape::Level.value(3, 7, second), 7);
        assert_eq!(Shape::Sum.value(3, 7, second), 4);
        assert_eq!(Shape::PerSecond.value(1_000, 2_000, Nanos::from_millis(500)), 2_000);
        assert_eq!(Shape::Part.value(0, 250_000_000, second), 250_000);
        assert_eq!(Shape::Sum.value(7, 3, second), 0, "the total was reset");
        assert_eq!(Shape::PerSecond.value(0, i64::MAX, Nanos::new(1)), i64::MAX, "no overflow");
        assert_eq!(Shape::PerSecond.value(0, 5, Nanos::ZERO), 5_000_000_000, "no division by zero");
    }

    #[test]
    fn values_are_formatted_in_readable_units() {
        assert_eq!(Unit::Millionths.show(415_000), "41.5 %");
        assert_eq!(Unit::BytesPerSecond.show(3_200_000), "3.2 MB/s");
        assert_eq!(Unit::Microwatts.show(12_340_000), "12.34 W");
        assert_eq!(Unit::Nanoseconds.show(1_500_000), "1.5 ms");
        assert_eq!(Unit::Count.show(-3), "-3");
        assert!(Unit::ALL.iter().zip(0..).all(|(unit, number)| *unit as u8 == number));
    }

    #[test]
    fn an_attributes_name_is_short_and_plain() {
        assert!(Attribute::new("my.queue", Unit::Count, Shape::Level).is_ok());
        for bad in ["", "a b", &"x".repeat(49)] {
            assert!(Attribute::new(bad, Unit::Count, Shape::Level).is_err(), "{bad}");
        }
    }
}
