//! Permission to send at a rate without retreating when packets are lost.

use qfabric_client::ReservedRate;
use qfabric_types::BitRate;

/// A rate that is reserved for the connection. Only a reservation makes one; a laboratory may claim one.
#[derive(Debug)]
pub struct RateGrant {
    rate: BitRate,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A stream of the daemon, renewed while the grant exists.
    Reservation(ReservedRate),
    Laboratory,
}

impl RateGrant {
    /// The rate of a stream that the daemon of this host reserved, for as long as it is reserved.
    pub fn reserved(held: ReservedRate) -> RateGrant {
        RateGrant { rate: held.rate(), source: Source::Reservation(held) }
    }

    /// A rate that nobody reserved. **On a shared network this harms all other flows** (RFC 8085): use it on links of a
    /// laboratory only.
    pub fn laboratory(rate: BitRate) -> RateGrant {
        tracing::warn!(%rate, "sending at a rate that nobody reserved: for laboratories only");
        RateGrant { rate, source: Source::Laboratory }
    }

    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// Whether the reservation still exists.
    pub fn is_live(&self) -> bool {
        match &self.source {
            Source::Reservation(held) => held.is_live(),
            Source::Laboratory => true,
        }
    }
}
