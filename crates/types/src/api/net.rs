//! The bodies of packet scheduling: interfaces under it, and streams of packets with deadlines.
//!
//! | call | body → answer |
//! |---|---|
//! | `GET /v1/net` | → list of [`InterfaceInfo`] |
//! | `PUT /v1/net/{interface}` | [`AttachRequest`] → 201 [`InterfaceInfo`] |
//! | `GET /v1/net/{interface}` | → [`InterfaceInfo`] |
//! | `DELETE /v1/net/{interface}` | → 204, what was there before is back |
//! | `POST /v1/net/{interface}/streams` | [`StreamSpec`] → 201 [`StreamInfo`] |
//! | `PATCH /v1/net/{interface}/streams/{id}` | [`StreamChange`] → [`StreamInfo`] |
//! | `DELETE /v1/net/{interface}/streams/{id}` | → 204 |
//!
//! Times in nanoseconds, lengths in bytes (with the link's header, as the interface counts them), rates in bits per
//! second. Changing needs root or CAP_NET_ADMIN.

mod selector;

pub use selector::{Flow, InvalidSelector, Protocol, Selector};

use serde::{Deserialize, Serialize};

use super::ecalls::SubscriptionId;
use crate::{Instant, Nanos, Share, Window};

/// The number of a stream on its interface.
pub type StreamId = u32;

/// What carries streams out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum NetMechanism {
    /// Dynamic Window-Constrained Scheduling, a queueing discipline in BPF (Linux 6.16 and newer).
    Dwcs,
    /// A class of a hierarchical token bucket for each stream: rates, without deadlines and windows.
    Htb,
}

impl std::fmt::Display for NetMechanism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            NetMechanism::Dwcs => "dwcs",
            NetMechanism::Htb => "htb",
        })
    }
}

/// Puts an interface under packet scheduling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AttachRequest {
    /// What to use; without it DWCS where the kernel has it, else HTB.
    #[serde(default)]
    pub mechanism: Option<NetMechanism>,
    /// Bits per second to which sending is paced, and for which streams are admitted; without it the interface's own
    /// speed, unpaced.
    #[serde(default)]
    pub rate_bps: Option<u64>,
    /// The part of the link that best effort is sure of; 0.05 without it.
    #[serde(default)]
    pub best_effort: Option<Share>,
    /// Packets are held back and sent in bursts, this long before the first deadline among them.
    #[serde(default)]
    pub hold: Option<Nanos>,
}

/// A stream: whose packets, how many bytes by when, and which periods may be lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Whose packets.
    pub selector: Selector,
    /// T: C bytes in each.
    pub period: Nanos,
    /// Θ: a packet goes at the earliest this long after the period in which it came began, and at the latest a
    /// period later.
    #[serde(default)]
    pub phase: Nanos,
    /// x/y: at most x of every y periods may be lost.
    #[serde(default = "no_loss")]
    pub window: Window,
    /// C: bytes of one period; the largest packet where each period has one.
    #[serde(default = "largest_packet")]
    pub size: u32,
    /// Whether packets beyond C go ahead of their period, and of best effort, when nothing else is ready.
    #[serde(default)]
    pub work_conserving: bool,
    /// Packets that may wait.
    #[serde(default = "StreamSpec::most_packets")]
    pub limit: u32,
    /// When its first period began (CLOCK_MONOTONIC); without it, with its first packet.
    #[serde(default)]
    pub start: Option<Instant>,
}

/// What is to be different of a stream; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamChange {
    /// T.
    #[serde(default)]
    pub period: Option<Nanos>,
    /// Θ.
    #[serde(default)]
    pub phase: Option<Nanos>,
    /// x/y.
    #[serde(default)]
    pub window: Option<Window>,
    /// C.
    #[serde(default)]
    pub size: Option<u32>,
    /// Whether it is work-conserving.
    #[serde(default)]
    pub work_conserving: Option<bool>,
    /// Packets that may wait.
    #[serde(default)]
    pub limit: Option<u32>,
    /// When its first period began.
    #[serde(default)]
    pub start: Option<Instant>,
    /// The subscription whose attributes the stream follows from now on: what handlers in E-code, or anybody else, set
    /// of `period_ns`, `phase_ns`, `window_x`, `window_y` and `size_bytes` becomes the stream's own. 0: none any more.
    #[serde(default)]
    pub follow: Option<SubscriptionId>,
}

/// A stream as it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamInfo {
    /// Its number.
    pub id: StreamId,
    /// What it asked for.
    pub spec: StreamSpec,
    /// (1 − x/y)·C/T over the link's rate.
    pub utilization: f64,
    /// The subscription whose attributes it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<SubscriptionId>,
    /// What became of its packets.
    pub counters: StreamCounters,
}

/// What became of a stream's packets and periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct StreamCounters {
    /// Packets taken into its queue.
    pub packets: u64,
    /// Packets sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Of these, packets sent after the end of their own period.
    pub sent_late: u64,
    /// Of these, packets sent ahead of their period because nothing else was ready.
    pub sent_extra: u64,
    /// Packets dropped late, as the window allows.
    pub late: u64,
    /// Packets dropped because its queue was full.
    pub overflow: u64,
    /// Packets larger than C, sent as best effort.
    pub oversize: u64,
    /// Periods served.
    pub served: u64,
    /// Periods missed.
    pub missed: u64,
    /// Of these, periods beyond the window.
    pub violations: u64,
    /// Nanoseconds that packets sent have waited, in all.
    pub delay_sum_ns: u64,
    /// Nanoseconds that a packet has waited, at most.
    pub delay_max_ns: u64,
    /// Packets that wait.
    pub waiting: u64,
}

/// What became of packets of no stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BestEffortCounters {
    /// Packets taken into the queue.
    pub packets: u64,
    /// Packets sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Of these, packets sent before ready packets of streams: its share.
    pub owed: u64,
    /// Packets dropped because the queue was full.
    pub overflow: u64,
    /// Packets that wait.
    pub waiting: u64,
}

/// An interface under packet scheduling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InterfaceInfo {
    /// Its name.
    pub interface: String,
    /// What carries its streams out.
    pub mechanism: NetMechanism,
    /// Why not DWCS, where that was not asked for by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Bits per second for which streams are admitted.
    pub rate_bps: u64,
    /// Whether sending is paced to that rate.
    pub paced: bool,
    /// The part that best effort is sure of.
    pub best_effort: Share,
    /// Whether packets are held back to be sent in bursts, and how long before the first deadline they go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Nanos>,
    /// The queueing discipline that was there before, and will be again.
    pub former: String,
    /// Σ(1 − x/y)·C/T over the rate.
    pub utilization: f64,
    /// Its streams.
    pub streams: Vec<StreamInfo>,
    /// Packets of no stream.
    pub best_effort_counters: BestEffortCounters,
    /// Times that held packets were let go.
    pub bursts: u64,
}

fn no_loss() -> Window {
    Window::NONE
}

fn largest_packet() -> u32 {
    StreamSpec::LARGEST_PACKET
}

impl StreamSpec {
    /// Bytes of the largest packet of an Ethernet without jumbo frames, with its header.
    pub const LARGEST_PACKET: u32 = 1514;
    /// The most packets of a stream that may wait.
    pub const LIMIT: u32 = 128;

    fn most_packets() -> u32 {
        StreamSpec::LIMIT
    }

    /// The stream of `selector` with one packet in every `period`, none of which may be lost.
    pub fn new(selector: Selector, period: Nanos) -> StreamSpec {
        StreamSpec {
            selector,
            period,
            phase: Nanos::ZERO,
            window: Window::NONE,
            size: StreamSpec::LARGEST_PACKET,
            work_conserving: false,
            limit: StreamSpec::LIMIT,
            start: None,
        }
    }

    /// The period, phase, window and size that a subscription's attributes say; what they do not say, or what cannot be
    /// meant, stays.
    pub fn following(&self, attributes: &[(String, i64)]) -> StreamSpec {
        let value = |name: &str| {
            let found = attributes.iter().find(|(found, _)| found == name);
            found.and_then(|(_, value)| u64::try_from(*value).ok()).filter(|value| *value > 0 || name != "period_ns")
        };
        let (x, y) = (u64::from(self.window.x()), u64::from(self.window.y()));
        let window = Window::new(value("window_x").unwrap_or(x), value("window_y").filter(|y| *y > 0).unwrap_or(y));
        self.changed(&StreamChange {
            period: value("period_ns").map(Nanos::new),
            phase: value("phase_ns").map(Nanos::new),
            window: window.ok(),
            size: value("size_bytes").and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0),
            ..StreamChange::default()
        })
    }

    /// The same with what `change` names.
    pub fn changed(&self, change: &StreamChange) -> StreamSpec {
        StreamSpec {
            selector: self.selector.clone(),
            period: change.period.unwrap_or(self.period),
            phase: change.phase.unwrap_or(self.phase),
            window: change.window.unwrap_or(self.window),
            size: change.size.unwrap_or(self.size),
            work_conserving: change.work_conserving.unwrap_or(self.work_conserving),
            limit: change.limit.unwrap_or(self.limit),
            start: change.start.or(self.start),
        }
    }

    /// Nanoseconds that C bytes occupy a link of `rate_bps`, rounded up.
    pub fn service(&self, rate_bps: u64) -> Nanos {
        let ns = (u128::from(self.size) * 8 * 1_000_000_000).div_ceil(u128::from(rate_bps.max(1)));
        Nanos::new(ns.min(u128::from(u64::MAX)) as u64)
    }

    /// (1 − x/y)·C/T on a link of `rate_bps`.
    pub fn utilization(&self, rate_bps: u64) -> f64 {
        let (x, y) = (f64::from(self.window.x()), f64::from(self.window.y()));
        (1.0 - x / y) * self.service(rate_bps).as_f64() / self.period.as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_change_does_not_name_stays() {
        let stream = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40));
        let change = StreamChange { phase: Some(Nanos::from_millis(15)), ..StreamChange::default() };
        let changed = stream.changed(&change);
        assert_eq!((changed.phase, changed.period), (Nanos::from_millis(15), stream.period));
        assert_eq!(stream.changed(&StreamChange::default()), stream);
    }

    #[test]
    fn a_stream_uses_of_a_link_what_its_window_does_not_give_up() {
        let mut stream = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(10));
        stream.size = 1_250;
        assert_eq!(stream.service(1_000_000), Nanos::from_millis(10));
        stream.window = Window::new(1, 4).unwrap();
        assert!((stream.utilization(10_000_000) - 0.075).abs() < 1e-9);
    }

    #[test]
    fn a_stream_follows_the_attributes_that_can_be_meant() {
        let stream = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40));
        let says = |name: &str, value| (name.to_owned(), value);
        let all = [says("period_ns", 20_000_000), says("window_x", 1), says("window_y", 4), says("other", 9)];
        let followed = stream.following(&all);
        assert_eq!((followed.period, followed.window), (Nanos::from_millis(20), Window::new(1, 4).unwrap()));
        let nonsense = [says("period_ns", 0), says("window_x", 9), says("size_bytes", -1), says("window_y", 0)];
        assert_eq!(stream.following(&nonsense), stream);
    }

    #[test]
    fn a_stream_is_told_in_few_words() {
        let text = r#"{"selector":{"mark":7},"period":40000000}"#;
        let stream: StreamSpec = serde_json::from_str(text).unwrap();
        assert_eq!(stream, StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40)));
        let back = serde_json::to_string(&stream).unwrap();
        assert_eq!(serde_json::from_str::<StreamSpec>(&back).unwrap(), stream);
    }
}
