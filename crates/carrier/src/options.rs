//! Options of connections and their ranges.

use std::time::Duration;

use qfabric_metp::{DeliveryOrder, Mode};
use qfabric_realm::Tls;
use qfabric_types::api::net::StreamSpec;
use qfabric_types::channel::Name;
use qfabric_types::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::Error;

/// How messages travel over QUIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// METP in QUIC datagrams.
    #[default]
    Metp,
    /// A QUIC stream for each message, reset at the message's deadline. QUIC repairs losses.
    Streams,
}

/// Congestion control while no rate is granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Congestion {
    /// RFC 9438. Shares a link fairly with TCP.
    #[default]
    Cubic,
    /// Measures the path's rate; quinn calls its BBR experimental.
    Bbr,
}

/// Options of one end of a connection.
#[derive(Clone, Debug)]
pub struct Options {
    pub engine: Engine,
    pub congestion: Congestion,
    pub mode: Mode,
    /// The rate at which this side wants to send, with all headers. Without a grant, congestion control may lower it.
    pub rate: BitRate,
    /// M_A: the largest message in either direction.
    pub largest_message: Bytes,
    /// Messages without an outcome, and messages that are being received.
    pub messages_in_flight: u16,
    /// The maximum time for a send in partially reliable mode, for messages without a deadline (§5.2.3).
    pub send_time: Option<Duration>,
    /// The maximum time for a receive in partially reliable mode (§5.2.3).
    pub receive_time: Option<Duration>,
    pub order: DeliveryOrder,
    /// The largest UDP payload that is tried. A connection begins with [`Options::LEAST_MTU`], probes up to this size, and
    /// falls back if the path carries less later; METP cuts its messages again.
    pub mtu: u16,
    /// The code point (DSCP, 0 to 63) of all packets of the side that opens the connection, for routers and access points;
    /// None: the default of the system. It reserves nothing, and queues of this host do not look at it. Each packet then
    /// costs a system call of its own.
    pub dscp: Option<u8>,
    /// The longest time of a handshake.
    pub handshake_time: Duration,
    /// The connection ends if the other side is silent for this time.
    pub idle_limit: Duration,
    /// The sessions of one host with a service at the same time, 1 to [`Options::MOST_SESSIONS`]; a further one is
    /// refused. Of no effect at the side that opens the connection.
    pub sessions_per_host: usize,
}

/// An end that can prove its identity.
#[derive(Clone, Debug)]
pub(crate) struct Secured {
    /// Says also which hosts have which rights.
    pub(crate) tls: Tls,
    pub(crate) options: Options,
}

impl Options {
    /// What every path carries (RFC 9000 §14).
    pub const LEAST_MTU: u16 = 1_200;
    /// The largest code point: six bits.
    pub const MOST_DSCP: u8 = StreamSpec::MOST_DSCP;
    /// The sessions of all hosts with a service at the same time.
    pub const MOST_SESSIONS: usize = 64;
    /// Ethernet's 1500 bytes without the headers of IPv6 and UDP.
    pub const ETHERNET_MTU: u16 = 1_452;
    const MTU: std::ops::RangeInclusive<u16> = Options::LEAST_MTU..=9_000;
    const TIMES: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);
    /// Messages of both directions may wait in memory; this bounds them.
    const MOST_MESSAGE: u64 = 15 << 20;
    /// METP's least receive memory.
    const LEAST_MEMORY: u64 = 64 << 10;
    /// Unless two messages need more.
    const MOST_MEMORY: u64 = 32 << 20;

    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad = |option, value: String, allowed| Err(Error::Option { option, value, allowed });
        if !Options::MTU.contains(&self.mtu) {
            return bad("mtu", self.mtu.to_string(), "1200 to 9000 bytes");
        }
        if let Some(dscp) = self.dscp.filter(|dscp| *dscp > Options::MOST_DSCP) {
            return bad("dscp", dscp.to_string(), "0 to 63, such as 46 for expedited forwarding");
        }
        for (option, time) in [("handshake_time", self.handshake_time), ("idle_limit", self.idle_limit)] {
            if !Options::TIMES.contains(&time) {
                return bad(option, format!("{} ms", time.as_millis()), "100 ms to 1 h");
            }
        }
        if !(1..=Options::MOST_MESSAGE).contains(&self.largest_message.get()) {
            return bad("largest_message", self.largest_message.to_string(), "1 byte to 15 MiB");
        }
        if !(1..=Options::MOST_SESSIONS).contains(&self.sessions_per_host) {
            return bad("sessions_per_host", self.sessions_per_host.to_string(), "1 to 64");
        }
        Ok(())
    }

    /// Memory for the messages of one direction: as many as fit, at least two.
    pub(crate) fn memory(&self) -> Bytes {
        let least = (2 * self.largest_message.get()).max(Options::LEAST_MEMORY);
        let wanted = self.largest_message.get().saturating_mul(self.messages_in_flight.into());
        Bytes::new(wanted.clamp(least, least.max(Options::MOST_MEMORY)))
    }
}

impl Default for Options {
    /// METP, Cubic, totally reliable, 10 Mbit/s, messages of at most 1 MiB. One host may have all sessions.
    fn default() -> Options {
        Options {
            engine: Engine::Metp,
            congestion: Congestion::Cubic,
            mode: Mode::TotallyReliable,
            rate: BitRate::new(10_000_000),
            largest_message: Bytes::from_mib(1),
            messages_in_flight: 64,
            send_time: None,
            receive_time: None,
            order: DeliveryOrder::InOrder,
            mtu: Options::ETHERNET_MTU,
            dscp: None,
            handshake_time: Duration::from_secs(5),
            idle_limit: Duration::from_secs(10),
            sessions_per_host: Options::MOST_SESSIONS,
        }
    }
}

pub(crate) fn nanos(time: Duration) -> Nanos {
    Nanos::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The service of a receiver without a name of its own.
pub fn default_service() -> Name {
    "metp".parse().expect("is a name")
}
