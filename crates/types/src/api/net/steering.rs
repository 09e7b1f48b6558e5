//! The attributes of a stream: what the monitor reads of it, and what policies decide about it.

use super::{StreamChange, StreamId, StreamSpec};
use crate::monitor::{Attribute, AttributeId, Metric, Shape, Unit};
use crate::{BitRate, Nanos, Window};

/// An attribute of a stream. Its name is `net.INTERFACE.streamID.WORD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamAttribute {
    /// The promised rate, in bits per second. A decision changes C.
    Rate,
    /// T, in nanoseconds. A decision leaves C as it is.
    Period,
    /// The window, as `256·x + y`.
    Window,
    /// Bytes sent, by second.
    Sent,
    /// Packets that wait.
    Waiting,
    /// Packets dropped because the queue was full.
    Dropped,
    /// Periods that ended with unsent packets (DWCS).
    Missed,
    /// Missed periods beyond the window (DWCS).
    Violations,
    /// Packets that were sent or dropped.
    Packets,
    /// Of these, the packets that were sent after the end of their own period (DWCS), or dropped. A stream that sends
    /// more than it is promised has late packets, although it misses no period.
    Late,
}

impl StreamAttribute {
    /// All attributes.
    pub const ALL: [StreamAttribute; 10] = [
        StreamAttribute::Rate,
        StreamAttribute::Period,
        StreamAttribute::Window,
        StreamAttribute::Sent,
        StreamAttribute::Waiting,
        StreamAttribute::Dropped,
        StreamAttribute::Missed,
        StreamAttribute::Violations,
        StreamAttribute::Packets,
        StreamAttribute::Late,
    ];

    const fn word(self) -> &'static str {
        match self {
            StreamAttribute::Rate => "rate",
            StreamAttribute::Period => "period",
            StreamAttribute::Window => "window",
            StreamAttribute::Sent => "sent",
            StreamAttribute::Waiting => "waiting",
            StreamAttribute::Dropped => "dropped",
            StreamAttribute::Missed => "missed",
            StreamAttribute::Violations => "violations",
            StreamAttribute::Packets => "packets",
            StreamAttribute::Late => "late",
        }
    }

    /// Whether a policy may decide the attribute.
    pub const fn is_decidable(self) -> bool {
        matches!(self, StreamAttribute::Rate | StreamAttribute::Period | StreamAttribute::Window)
    }

    const fn shape(self) -> (Unit, Shape) {
        match self {
            StreamAttribute::Rate | StreamAttribute::Window | StreamAttribute::Waiting => (Unit::Count, Shape::Level),
            StreamAttribute::Period => (Unit::Nanoseconds, Shape::Level),
            StreamAttribute::Sent => (Unit::BytesPerSecond, Shape::PerSecond),
            StreamAttribute::Dropped
            | StreamAttribute::Missed
            | StreamAttribute::Violations
            | StreamAttribute::Packets
            | StreamAttribute::Late => (Unit::Count, Shape::Sum),
        }
    }

    /// The name of this attribute of a stream, such as `net.eth0.stream0.missed`.
    pub fn name(self, interface: &str, stream: StreamId) -> String {
        let metric = Metric { name: "net.*", unit: Unit::Count, shape: Shape::Level, about: "" };
        format!("{}.stream{stream}.{}", metric.name_of(interface), self.word())
    }

    /// The identity of this attribute of a stream.
    pub fn id(self, interface: &str, stream: StreamId) -> AttributeId {
        AttributeId::of(&self.name(interface, stream))
    }

    /// The attribute for a monitor.
    pub fn of(self, interface: &str, stream: StreamId) -> Attribute {
        let (unit, shape) = self.shape();
        Attribute::new(&self.name(interface, stream), unit, shape).expect("an interface has at most 15 bytes")
    }

    /// The change of a stream that makes a decided amount true; none: the attribute cannot be decided, or the amount is
    /// out of its range.
    pub fn change(self, now: &StreamSpec, amount: i64) -> Option<StreamChange> {
        let positive = u64::try_from(amount).ok().filter(|amount| *amount > 0)?;
        let none = StreamChange::default();
        match self {
            StreamAttribute::Rate => {
                let size = now.size_at(BitRate::new(positive)).max(1);
                Some(StreamChange { size: Some(size), ..none })
            }
            StreamAttribute::Period => Some(StreamChange { period: Some(Nanos::new(positive)), ..none }),
            StreamAttribute::Window => {
                let window = Window::new(positive >> 8, positive & 0xff).ok()?;
                Some(StreamChange { window: Some(window), ..none })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::net::Selector;
    use crate::monitor::MAX_NAME;

    #[test]
    fn every_attribute_of_the_longest_interface_has_a_valid_name() {
        for attribute in StreamAttribute::ALL {
            let found = attribute.of("enp0s31f6.4000x", 63);
            assert!(found.name.as_str().len() <= MAX_NAME && !found.is_of_application(), "{}", found.name);
        }
        assert_eq!(StreamAttribute::Missed.name("br:0", 2), "net.br_0.stream2.missed");
    }

    #[test]
    fn a_decision_changes_its_part_of_the_stream() {
        let now = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40));
        let change = |attribute: StreamAttribute, amount| attribute.change(&now, amount);
        let sized = change(StreamAttribute::Rate, 1_000_000).unwrap();
        assert_eq!(now.changed(&sized).rate(), BitRate::new(1_000_000));
        let period = change(StreamAttribute::Period, 20_000_000).unwrap();
        assert_eq!((period.period, period.size), (Some(Nanos::from_millis(20)), None));
        assert_eq!(change(StreamAttribute::Window, 256 + 5).unwrap().window, Window::new(1, 5).ok());
        assert_eq!(change(StreamAttribute::Window, 5 * 256 + 5), None, "every period would be lost");
        assert_eq!((change(StreamAttribute::Rate, 0), change(StreamAttribute::Missed, 1)), (None, None));
    }
}
