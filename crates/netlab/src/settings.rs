//! The properties of the emulated link, and their bounds.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use qfabric_types::{BitRate, Bytes, InvalidQuantity, Nanos};

use crate::loss::LossModel;
use crate::schedule::Schedule;
use crate::trace::Trace;

/// Slowest rate: a packet of 1,500 bytes takes 12 s.
pub const RATE_MIN: BitRate = BitRate::new(1_000);
/// Fastest rate; user space carries about 2 Gbit/s, so a faster link is better left unlimited.
pub const RATE_MAX: BitRate = BitRate::new(100_000_000_000);
/// Longest delay, jitter, and length of a queue.
pub const DELAY_MAX: Nanos = Nanos::from_millis(60_000);
/// Largest queue.
pub const QUEUE_MAX: Bytes = Bytes::from_mib(512);
/// Sizes of a packet, in bytes, that a path can be limited to: the least that IPv4 hosts must accept, to the largest
/// frames of Ethernet.
pub const MTU_RANGE: std::ops::RangeInclusive<u16> = 576..=9_000;
/// Most addresses of the peer's end.
pub const PATHS_MAX: usize = 16;

/// A direction of the link. Up is from the local end to the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkDirection {
    Up,
    Down,
}

impl LinkDirection {
    pub const BOTH: [LinkDirection; 2] = [LinkDirection::Up, LinkDirection::Down];
}

/// The rate of a direction. Bytes of IP packets count, without headers of a lower layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LinkRate {
    /// Packets take no time, and no queue forms.
    #[default]
    Unlimited,
    Constant(BitRate),
    Trace(Arc<Trace>),
}

impl LinkRate {
    /// The rate, or the mean rate of a trace; `None`: unlimited.
    pub fn mean(&self) -> Option<BitRate> {
        match self {
            LinkRate::Unlimited => None,
            LinkRate::Constant(rate) => Some(*rate),
            LinkRate::Trace(trace) => Some(trace.mean()),
        }
    }
}

impl FromStr for LinkRate {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        if text == "unlimited" { Ok(LinkRate::Unlimited) } else { text.parse().map(LinkRate::Constant) }
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkRate::Unlimited => f.write_str("unlimited"),
            LinkRate::Constant(rate) => rate.fmt(f),
            LinkRate::Trace(trace) => write!(f, "a trace of {} with {} on average", trace.length(), trace.mean()),
        }
    }
}

/// The size of a queue, with the packet that is being sent. An arriving packet that does not fit is dropped
/// (drop-tail); an empty queue takes every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    Bytes(Bytes),
    /// The bytes that the rate sends in this time. It follows a rate that changes.
    Time(Nanos),
}

impl QueueLimit {
    /// The limit in bytes at a rate.
    pub(crate) fn bytes_at(self, rate: Option<BitRate>) -> u64 {
        match (self, rate) {
            (QueueLimit::Bytes(bytes), _) => bytes.get(),
            (QueueLimit::Time(_), None) => u64::MAX,
            (QueueLimit::Time(time), Some(rate)) => (u128::from(rate.get()) * u128::from(time.get()) / 8_000_000_000)
                .min(u128::from(QUEUE_MAX.get())) as u64,
        }
    }
}

impl Default for QueueLimit {
    /// The queue of RFC 8867's test cases.
    fn default() -> QueueLimit {
        QueueLimit::Time(Nanos::from_millis(300))
    }
}

impl FromStr for QueueLimit {
    type Err = InvalidQuantity;

    /// Accepts a time with its unit, such as `300ms`, and an amount, such as `64kB`.
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let expected = "the size of a queue as a time or an amount, such as 300ms, 64kB or 65536";
        let refused = |_| InvalidQuantity { text: text.chars().take(40).collect(), expected };
        text.parse().map(QueueLimit::Time).or_else(|_| text.parse().map(QueueLimit::Bytes)).map_err(refused)
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Bytes(bytes) => bytes.fmt(f),
            QueueLimit::Time(time) => time.fmt(f),
        }
    }
}

/// One direction of the link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    pub rate: LinkRate,
    pub queue: QueueLimit,
    /// Propagation delay, after the last byte was sent.
    pub delay: Nanos,
    /// Largest additional delay of a packet; packets keep their order.
    pub jitter: Nanos,
    pub loss: LossModel,
}

impl LinkSettings {
    /// Refuses values outside the bounds.
    pub fn check(&self) -> Result<(), SettingsError> {
        if let LinkRate::Constant(rate) = self.rate {
            within("rate", rate, RATE_MIN, RATE_MAX)?;
        }
        within("delay", self.delay, Nanos::ZERO, DELAY_MAX)?;
        within("jitter", self.jitter, Nanos::ZERO, DELAY_MAX)?;
        match self.queue {
            QueueLimit::Bytes(bytes) => within("queue", bytes, Bytes::new(1), QUEUE_MAX),
            QueueLimit::Time(time) => within("queue", time, Nanos::new(1), DELAY_MAX),
        }
    }
}

impl fmt::Display for LinkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkSettings { rate, queue, delay, jitter, loss } = self;
        write!(f, "rate {rate}, queue {queue}, delay {delay}, jitter {jitter}, loss {loss}")
    }
}

/// A change of one direction; `None` leaves a property as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkChange {
    pub rate: Option<LinkRate>,
    pub queue: Option<QueueLimit>,
    pub delay: Option<Nanos>,
    pub jitter: Option<Nanos>,
    pub loss: Option<LossModel>,
}

impl LinkChange {
    pub fn apply(&self, settings: &mut LinkSettings) {
        let LinkChange { rate, queue, delay, jitter, loss } = self.clone();
        settings.rate = rate.unwrap_or_else(|| settings.rate.clone());
        settings.queue = queue.unwrap_or(settings.queue);
        settings.delay = delay.unwrap_or(settings.delay);
        settings.jitter = jitter.unwrap_or(settings.jitter);
        settings.loss = loss.unwrap_or(settings.loss);
    }
}

/// The whole link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabSettings {
    pub up: LinkSettings,
    pub down: LinkSettings,
    /// Additional one-way delay of each address of the peer's end, in both directions. All paths share the rate and the
    /// queue. At least one.
    pub paths: Vec<Nanos>,
    pub schedule: Schedule,
    /// Decides the losses and the jitter.
    pub seed: u64,
    /// Largest packet in bytes.
    pub mtu: u16,
}

impl Default for LabSettings {
    fn default() -> LabSettings {
        let (up, down) = Default::default();
        LabSettings { up, down, paths: vec![Nanos::ZERO], schedule: Schedule::default(), seed: 1, mtu: 1_500 }
    }
}

impl LabSettings {
    /// A link with the same properties in both directions.
    pub fn symmetric(link: LinkSettings, seed: u64) -> LabSettings {
        LabSettings { up: link.clone(), down: link, seed, ..LabSettings::default() }
    }

    pub fn link_mut(&mut self, direction: LinkDirection) -> &mut LinkSettings {
        match direction {
            LinkDirection::Up => &mut self.up,
            LinkDirection::Down => &mut self.down,
        }
    }

    /// Refuses values outside the bounds.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.up.check()?;
        self.down.check()?;
        within("MTU", self.mtu, *MTU_RANGE.start(), *MTU_RANGE.end())?;
        within("number of paths", self.paths.len(), 1, PATHS_MAX)?;
        self.paths.iter().try_for_each(|delay| within("delay of a path", *delay, Nanos::ZERO, DELAY_MAX))
    }
}

/// A property outside its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {value}: the least is {least}, the most is {most}")]
pub struct SettingsError {
    pub name: &'static str,
    pub value: String,
    pub least: String,
    pub most: String,
}

impl SettingsError {
    pub fn problem(&self) -> qfabric_types::api::Problem {
        let SettingsError { name, least, most, .. } = self;
        qfabric_types::api::Problem {
            code: "out_of_range".into(),
            message: self.to_string(),
            next_step: format!("choose a {name} from {least} to {most}"),
            ..Default::default()
        }
    }
}

fn within<T: PartialOrd + fmt::Display + Copy>(
    name: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), SettingsError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let [value, least, most] = [value, least, most].map(|number| number.to_string());
    Err(SettingsError { name, value, least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_a_time_or_an_amount() {
        assert_eq!("300ms".parse(), Ok(QueueLimit::Time(Nanos::from_millis(300))));
        assert_eq!("64kB".parse(), Ok(QueueLimit::Bytes(Bytes::new(64_000))));
        assert!("long".parse::<QueueLimit>().unwrap_err().to_string().contains("300ms"));
        let (rate, queue) = (Some(BitRate::new(1_000_000)), QueueLimit::default());
        assert_eq!((queue.bytes_at(rate), queue.bytes_at(None)), (37_500, u64::MAX));
    }

    #[test]
    fn values_outside_the_bounds_are_refused_with_the_bounds() {
        let link = |change: LinkChange| {
            let mut settings = LinkSettings::default();
            change.apply(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        let slow = Some(LinkRate::Constant(BitRate::new(1)));
        let refusal = link(LinkChange { rate: slow, ..Default::default() });
        assert_eq!(refusal, "rate 1 bit/s: the least is 1 kbit/s, the most is 100 Gbit/s");
        assert!(link(LinkChange { delay: Some(Nanos::MAX), ..Default::default() }).contains("60 s"));
        assert!(link(LinkChange { queue: Some(QueueLimit::Bytes(Bytes::ZERO)), ..Default::default() }).contains("1 B"));
        let paths = LabSettings { paths: Vec::new(), ..LabSettings::default() }.check().unwrap_err();
        assert!(paths.problem().next_step.contains("from 1 to 16"));
        assert!(LabSettings { mtu: 100, ..LabSettings::default() }.check().is_err());
        assert_eq!(LabSettings::default().check(), Ok(()));
    }
}
