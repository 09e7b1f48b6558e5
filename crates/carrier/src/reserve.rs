//! Reserves the rate of a connection at the daemon of this host.

use std::net::SocketAddr;

use qfabric_client::Client;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::net::{Flow, Protocol, Selector, StreamSpec};
use qfabric_types::{BitRate, Nanos};

use crate::connection::Connection;
use crate::grant::{RateGrant, shown};
use crate::{CarrierStatistics, Error};

impl Connection {
    /// Reserves `rate` on an interface for the packets of the carrier that sends, and sends at it from now on.
    /// `period` is the time between two frames. With a contract, the rate is drawn from the contract. Returns the reserved
    /// rate. The reservation ends with the connection, with the next grant, or
    /// when the packets get other addresses ([`crate::Event::Revoked`]); then reserve again.
    ///
    /// # Errors
    /// [`Error::Daemon`]: no daemon, or its refusal. The connection goes on as before.
    pub fn reserve(
        &self,
        client: &Client,
        interface: &str,
        rate: BitRate,
        period: Nanos,
        contract: Option<&JointId>,
    ) -> Result<BitRate, Error> {
        let addresses = flow(&self.statistics().carriers);
        let (source, destination) = addresses.ok_or(Error::Option {
            option: "reserve",
            value: "a connection without addresses".to_owned(),
            allowed: "connections over QUIC",
        })?;
        let spec = spec(rate, period, source, destination);
        let reserved = match contract {
            None => client.reserve_rate(interface, &spec),
            Some(contract) => client.reserve_rate_of_contract(contract, interface, &spec),
        };
        let grant = RateGrant::reserved(reserved.map_err(|error| Error::Daemon(Box::new(error)))?);
        let rate = grant.rate();
        self.grant(Some(grant))?;
        Ok(rate)
    }
}

fn spec(rate: BitRate, period: Nanos, source: SocketAddr, destination: SocketAddr) -> StreamSpec {
    let flow = Flow { protocol: Protocol::Udp, source, destination };
    let mut spec = StreamSpec::new(Selector::Flow(flow), period);
    // A packet that is larger than C would be sent as best effort. The stream is not work-conserving: the session sends at
    // the granted rate, headers included, and the daemon grants such streams to privileged users only.
    spec.size = spec.size_at(rate).max(StreamSpec::LARGEST_PACKET);
    spec
}

/// The own address and the other side's, as packets of the carrier that sends show them.
fn flow(carriers: &[CarrierStatistics]) -> Option<(SocketAddr, SocketAddr)> {
    carriers.iter().find(|carrier| carrier.is_sending)?.addresses.map(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CarrierCounts, CarrierKind};

    #[test]
    fn the_packets_of_the_carrier_that_sends_are_reserved() {
        let carrier = |carrier, port| CarrierStatistics {
            carrier,
            is_sending: carrier == 1,
            kind: CarrierKind::QuicDatagrams,
            addresses: Some((SocketAddr::from(([10, 9, 0, 1], port)), SocketAddr::from(([10, 9, 0, 2], 7_800)))),
            max_datagram: 1_200,
            counts: CarrierCounts::default(),
        };
        assert_eq!(flow(&[carrier(0, 7_000), carrier(1, 7_001)]).unwrap().0.port(), 7_001);
    }

    #[test]
    fn the_stream_of_a_connection_is_one_that_any_user_may_have() {
        let (source, destination) = ("10.9.0.1:7000".parse().unwrap(), "10.9.0.2:7800".parse().unwrap());
        let stream = spec(BitRate::new(8_000_000), Nanos::from_millis(40), source, destination);
        assert!(!stream.work_conserving, "the daemon refuses such a stream to ordinary users");
        assert_eq!((stream.size, stream.rate()), (40_000, BitRate::new(8_000_000)));
    }
}
