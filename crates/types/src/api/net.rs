//! The bodies of packet scheduling: interfaces, and streams of packets with deadlines.
//!
//! | call | body → answer |
//! |---|---|
//! | `GET /v1/net` | → list of [`InterfaceInfo`] |
//! | `PUT /v1/net/{interface}` | [`AttachRequest`] → 201 [`InterfaceInfo`] |
//! | `GET /v1/net/{interface}` | → [`InterfaceInfo`] |
//! | `DELETE /v1/net/{interface}` | → 204; restores the former queueing discipline |
//! | `POST /v1/net/{interface}/streams` | [`StreamSpec`] → 201 [`StreamInfo`] |
//! | `PATCH /v1/net/{interface}/streams/{id}` | [`StreamChange`] → [`StreamInfo`] |
//! | `DELETE /v1/net/{interface}/streams/{id}` | → 204 |
//!
//! | `PUT /v1/net/{interface}/link` | [`LinkRequest`] → [`InterfaceInfo`]; opens the link to all users |
//! | `DELETE /v1/net/{interface}/link` | → 204; closes the link |
//!
//! Times in nanoseconds, lengths in bytes (including the link's header, as the interface counts them), rates in
//! bits per second. Changes need root or CAP_NET_ADMIN; on an open link, every user may begin, change and end streams
//! of own sockets.

mod link;
mod offer;
mod promise;
mod selector;
mod steering;

pub use link::{LinkBook, LinkInfo, LinkRequest, RateHolder};
pub use offer::{OFFER_FORMAT, OFFER_SERVICE, RateOffer};
pub use promise::{Bandwidth, MeasuredDelays, StreamPromise, StreamTerms};
pub use selector::{Flow, InvalidSelector, Protocol, Selector};
pub use steering::StreamAttribute;

use serde::{Deserialize, Serialize};

use super::ecalls::SubscriptionId;
use crate::{Instant, Nanos, Share, Window};

/// The number of a stream on its interface.
pub type StreamId = u32;
/// The number of a rate that is promised without a stream; never used again while the daemon runs.
pub type HeldRateId = u64;

/// The mechanism that schedules the packets of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum NetMechanism {
    /// Dynamic Window-Constrained Scheduling, a queueing discipline in BPF (Linux 6.16 and newer).
    Dwcs,
    /// One class of a hierarchical token bucket for each stream: rates only, no deadlines and windows.
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
    /// The mechanism; default: DWCS if the kernel supports it, else HTB.
    #[serde(default)]
    pub mechanism: Option<NetMechanism>,
    /// Bits per second to which sending is paced and for which streams are admitted; default: the interface's own
    /// speed, without pacing.
    #[serde(default)]
    pub rate_bps: Option<u64>,
    /// The part of the link that is guaranteed to best effort; default 0.05.
    #[serde(default)]
    pub best_effort: Option<Share>,
    /// Holds packets back and sends them in bursts, this time before the first deadline among them.
    #[serde(default)]
    pub hold: Option<Nanos>,
}

/// A stream: its packets, their size and deadline, and the periods that may be lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Selects the packets of the stream.
    pub selector: Selector,
    /// T: the stream may send C bytes in each period.
    pub period: Nanos,
    /// Θ: a packet is sent at the earliest this time after the begin of the period in which it arrived, and at the
    /// latest one period later.
    #[serde(default)]
    pub phase: Nanos,
    /// x/y: at most x of every y periods may be lost.
    #[serde(default = "no_loss")]
    pub window: Window,
    /// C: bytes per period; default: the largest packet, for one packet per period.
    #[serde(default = "largest_packet")]
    pub size: u32,
    /// Whether packets beyond C may be sent ahead of their period, before best effort, when no other packet is
    /// ready.
    #[serde(default)]
    pub work_conserving: bool,
    /// Most packets that may wait.
    #[serde(default = "StreamSpec::most_packets")]
    pub limit: u32,
    /// The begin of the first period (CLOCK_MONOTONIC); default: the arrival of the first packet.
    #[serde(default)]
    pub start: Option<Instant>,
    /// The code point (DSCP, 0 to 63) that all packets of the stream get, for routers and access points; default: the
    /// one that the sending program chose. It does not change the order in the queue of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// The lease, and whether a part of C is useful.
    #[serde(default, skip_serializing_if = "is_default")]
    pub terms: StreamTerms,
}

/// A change of a stream; missing fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamChange {
    /// T, the period.
    #[serde(default)]
    pub period: Option<Nanos>,
    /// Θ, the phase.
    #[serde(default)]
    pub phase: Option<Nanos>,
    /// x/y, the window.
    #[serde(default)]
    pub window: Option<Window>,
    /// C, the bytes per period.
    #[serde(default)]
    pub size: Option<u32>,
    /// Whether the stream is work-conserving.
    #[serde(default)]
    pub work_conserving: Option<bool>,
    /// Most packets that may wait.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The begin of the first period (CLOCK_MONOTONIC).
    #[serde(default)]
    pub start: Option<Instant>,
    /// The code point (DSCP, 0 to 63) of the packets.
    #[serde(default)]
    pub dscp: Option<u8>,
    /// The subscription whose attributes the stream follows from now on: the values of `period_ns`, `phase_ns`,
    /// `window_x`, `window_y` and `size_bytes`, set by handlers or by applications, become the stream's own. 0 ends
    /// the following.
    #[serde(default)]
    pub follow: Option<SubscriptionId>,
    /// The smallest C that is accepted.
    #[serde(default)]
    pub least: Option<u32>,
    /// Whether a partly granted stream is raised as soon as the link has room.
    #[serde(default)]
    pub upgrade: Option<bool>,
    /// Renews the lease: the stream ends after this time.
    #[serde(default, rename = "lease_ns")]
    pub lease: Option<Nanos>,
}

/// A stream and its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamInfo {
    /// The number of the stream.
    pub id: StreamId,
    /// The parameters in force.
    pub spec: StreamSpec,
    /// (1 − x/y)·C/T over the link's rate.
    pub utilization: f64,
    /// The subscription whose attributes the stream follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<SubscriptionId>,
    /// The owner, the lease and the promised rate.
    #[serde(default)]
    pub promise: StreamPromise,
    /// Counts since the stream was created.
    pub counters: StreamCounters,
}

/// Counts of a stream's packets and periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct StreamCounters {
    /// Packets accepted into the queue.
    pub packets: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent after the end of their own period.
    pub sent_late: u64,
    /// Packets sent ahead of their period because no other packet was ready.
    pub sent_extra: u64,
    /// Packets dropped because they were late, within the window.
    pub late: u64,
    /// Packets dropped because the queue was full.
    pub overflow: u64,
    /// Packets larger than C, sent as best effort.
    pub oversize: u64,
    /// Periods in which the stream sent all its bytes.
    pub served: u64,
    /// Periods that ended with unsent packets.
    pub missed: u64,
    /// Missed periods beyond the window.
    pub violations: u64,
    /// Total waiting time of the packets sent, in nanoseconds.
    pub delay_sum_ns: u64,
    /// Longest waiting time of a packet, in nanoseconds.
    pub delay_max_ns: u64,
    /// Packets that wait now.
    pub waiting: u64,
}

/// Counts of packets outside all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BestEffortCounters {
    /// Packets accepted into the queue.
    pub packets: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent before ready packets of streams, because of the guaranteed part of best effort.
    pub owed: u64,
    /// Packets dropped because the queue was full.
    pub overflow: u64,
    /// Packets that wait now.
    pub waiting: u64,
}

/// An interface under packet scheduling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InterfaceInfo {
    /// The name of the interface.
    pub interface: String,
    /// The mechanism in force.
    pub mechanism: NetMechanism,
    /// The reason why HTB is used instead of DWCS, if the request did not name HTB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Bits per second for which streams are admitted.
    pub rate_bps: u64,
    /// Whether sending is paced to that rate.
    pub paced: bool,
    /// The part of the link that is guaranteed to best effort.
    pub best_effort: Share,
    /// The time before the first deadline at which held packets are sent; absent if packets are not held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Nanos>,
    /// The former queueing discipline, which is restored at the end.
    pub former: String,
    /// Σ(1 − x/y)·C/T over the rate.
    pub utilization: f64,
    /// The streams of the interface.
    pub streams: Vec<StreamInfo>,
    /// Counts of packets outside all streams.
    pub best_effort_counters: BestEffortCounters,
    /// Number of bursts of held packets.
    pub bursts: u64,
    /// The limits and promises of the link, if it is open to all users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkInfo>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn no_loss() -> Window {
    Window::NONE
}

fn largest_packet() -> u32 {
    StreamSpec::LARGEST_PACKET
}

impl StreamSpec {
    /// Bytes of the largest packet on Ethernet without jumbo frames, including its header.
    pub const LARGEST_PACKET: u32 = 1514;
    /// Default and largest number of waiting packets of a stream.
    pub const LIMIT: u32 = 128;
    /// The largest code point: six bits.
    pub const MOST_DSCP: u8 = 63;

    fn most_packets() -> u32 {
        StreamSpec::LIMIT
    }

    /// The stream of `selector` with one packet in every `period` and no lost period.
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
            dscp: None,
            terms: StreamTerms::default(),
        }
    }

    /// The same stream with the period, phase, window and size from a subscription's attributes. Missing and
    /// invalid attributes are ignored.
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

    /// The same stream with the fields of `change` replaced.
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
            dscp: change.dscp.or(self.dscp),
            terms: StreamTerms {
                least: change.least.or(self.terms.least),
                upgrade: change.upgrade.unwrap_or(self.terms.upgrade),
                lease: change.lease.or(self.terms.lease),
                ..self.terms.clone()
            },
        }
    }

    /// The time that C bytes occupy a link of `rate_bps`, rounded up.
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
    fn a_change_keeps_the_fields_it_does_not_name() {
        let stream = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40));
        let change = StreamChange { phase: Some(Nanos::from_millis(15)), ..StreamChange::default() };
        let changed = stream.changed(&change);
        assert_eq!((changed.phase, changed.period), (Nanos::from_millis(15), stream.period));
        assert_eq!(stream.changed(&StreamChange::default()), stream);
    }

    #[test]
    fn the_window_lowers_the_utilization_of_a_stream() {
        let mut stream = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(10));
        stream.size = 1_250;
        assert_eq!(stream.service(1_000_000), Nanos::from_millis(10));
        stream.window = Window::new(1, 4).unwrap();
        assert!((stream.utilization(10_000_000) - 0.075).abs() < 1e-9);
    }

    #[test]
    fn a_stream_follows_valid_attributes_only() {
        let stream = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40));
        let says = |name: &str, value| (name.to_owned(), value);
        let all = [says("period_ns", 20_000_000), says("window_x", 1), says("window_y", 4), says("other", 9)];
        let followed = stream.following(&all);
        assert_eq!((followed.period, followed.window), (Nanos::from_millis(20), Window::new(1, 4).unwrap()));
        let nonsense = [says("period_ns", 0), says("window_x", 9), says("size_bytes", -1), says("window_y", 0)];
        assert_eq!(stream.following(&nonsense), stream);
    }

    #[test]
    fn the_default_fields_of_a_stream_may_be_left_out() {
        let text = r#"{"selector":{"mark":7},"period":40000000}"#;
        let stream: StreamSpec = serde_json::from_str(text).unwrap();
        assert_eq!(stream, StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40)));
        let back = serde_json::to_string(&stream).unwrap();
        assert_eq!(serde_json::from_str::<StreamSpec>(&back).unwrap(), stream);
    }
}
