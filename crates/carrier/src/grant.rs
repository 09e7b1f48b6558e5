//! Permission to send at a rate without retreating when packets are lost.

use std::net::SocketAddr;

use qfabric_client::ReservedRate;
use qfabric_types::BitRate;
use qfabric_types::api::net::{Flow, Selector};

/// A rate that is reserved for the connection. Only a reservation makes one; a laboratory may claim one.
#[derive(Debug)]
pub struct RateGrant {
    /// The packets for which it is reserved; `None`: all.
    flow: Option<Flow>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A stream of the daemon, renewed while the grant exists.
    Reservation(Box<ReservedRate>),
    Laboratory(BitRate),
}

impl RateGrant {
    /// The rate of a stream that the daemon of this host reserved, for as long as it is reserved. If the stream is a flow,
    /// the grant holds for packets with its addresses only.
    pub fn reserved(held: ReservedRate) -> RateGrant {
        let flow = match held.selector() {
            Selector::Flow(flow) => Some(*flow),
            Selector::Mark(_) | Selector::Cgroup(_) => None,
        };
        RateGrant { flow, source: Source::Reservation(Box::new(held)) }
    }

    /// A rate that nobody reserved. **On a shared network this harms all other flows** (RFC 8085): use it on links of a
    /// laboratory only.
    pub fn laboratory(rate: BitRate) -> RateGrant {
        tracing::warn!(%rate, "sending at a rate that nobody reserved: for laboratories only");
        RateGrant { flow: None, source: Source::Laboratory(rate) }
    }

    /// The rate now: the daemon may change the rate of a stream.
    pub fn rate(&self) -> BitRate {
        match &self.source {
            Source::Reservation(held) => held.rate(),
            Source::Laboratory(rate) => *rate,
        }
    }

    /// Whether it holds for packets with these addresses, the own one and the other side's.
    pub(crate) fn covers(&self, addresses: Option<(SocketAddr, SocketAddr)>) -> bool {
        let Some(flow) = self.flow else { return true };
        addresses.map(shown) == Some((flow.source, flow.destination))
    }

    /// Whether the reservation still exists.
    pub fn is_live(&self) -> bool {
        match &self.source {
            Source::Reservation(held) => held.is_live(),
            Source::Laboratory(_) => true,
        }
    }

    /// For tests: a grant for one flow.
    #[cfg(test)]
    pub(crate) fn of_flow(rate: BitRate, flow: Flow) -> RateGrant {
        RateGrant { flow: Some(flow), source: Source::Laboratory(rate) }
    }
}

/// The own address and the other side's, as packets show them.
pub(crate) fn shown((own, peer): (SocketAddr, SocketAddr)) -> (SocketAddr, SocketAddr) {
    let shown = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    (shown(own), shown(peer))
}
