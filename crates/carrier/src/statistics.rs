//! The numbers of a connection.

use std::net::SocketAddr;

use qfabric_metp::Statistics;
use qfabric_types::BitRate;

use crate::carrier::{CarrierCounts, CarrierKind};

/// The numbers of a connection since its begin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionStatistics {
    /// The counters of the session. The engine with streams counts in the same places, and leaves the others at zero.
    pub session: Statistics,
    pub carriers: Vec<CarrierStatistics>,
    /// The rate at which this side sends now.
    pub rate: BitRate,
    /// The granted rate, while it is in force.
    pub granted: Option<BitRate>,
    pub revocations: u64,
    /// Events that the application did not take in time.
    pub dropped_events: u64,
    /// How often the messages renewed a point of the stored profile, see [`crate::Connection::record_delays`].
    pub renewals: u64,
    /// Why the profile is not renewed any more.
    pub renewal_failure: Option<String>,
}

/// One carrier that is attached.
#[derive(Clone, Debug, PartialEq)]
pub struct CarrierStatistics {
    pub carrier: u32,
    /// It carries the messages of this side.
    pub is_sending: bool,
    pub kind: CarrierKind,
    /// Own address and the other side's; none within a process.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    pub max_datagram: usize,
    pub counts: CarrierCounts,
}
