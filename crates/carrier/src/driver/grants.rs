//! The grant of a connection: in force on the sending path, until its reservation ends, the watchdog revokes it, or the
//! packets get addresses for which it is not reserved.

use crate::carrier::Carrier;
use crate::grant::RateGrant;
use crate::quic::{Governor, Revocation};

#[derive(Debug, Default)]
pub(crate) struct Grants {
    grant: Option<RateGrant>,
    revocations: u64,
}

impl Grants {
    pub(crate) fn replace(&mut self, grant: Option<RateGrant>) {
        let old = std::mem::replace(&mut self.grant, grant);
        // Giving a reservation back asks the daemon, which may be slow; the connection goes on meanwhile.
        tokio::task::spawn_blocking(move || drop(old));
    }

    /// Gives the reservation back before the end of the connection is reported.
    pub(crate) async fn release(&mut self) {
        let old = self.grant.take();
        // Fails only if the drop panics.
        let _ = tokio::task::spawn_blocking(move || drop(old)).await;
    }

    pub(crate) fn revocations(&self) -> u64 {
        self.revocations
    }

    /// Puts the grant into force on a path, or takes it away from a path that does not send. Call [`Grants::watch`] for the
    /// former path first: a verdict that has not been read is lost here.
    pub(crate) fn apply(&self, governor: Option<&Governor>, is_sending: bool) {
        let Some(governor) = governor else { return };
        let rate = self.grant.as_ref().filter(|grant| is_sending && grant.is_live()).map(RateGrant::rate);
        match rate {
            Some(rate) => governor.grant(rate),
            None => governor.revoke(Revocation::ReservationEnded),
        }
        // A change that this side asked for is no event.
        governor.take_revocation();
    }

    /// A reservation that ended or is for other addresses, and the watchdog's verdict, end the grant. Returns the reason,
    /// once. A reservation that goes on with another rate changes the granted rate.
    pub(crate) fn watch(&mut self, carrier: &dyn Carrier) -> Option<Revocation> {
        let governor = carrier.governor()?;
        if let Some(grant) = &self.grant {
            if !grant.is_live() {
                governor.revoke(Revocation::ReservationEnded);
            } else if !grant.covers(carrier.addresses()) {
                governor.revoke(Revocation::OtherAddresses);
            } else {
                governor.change(grant.rate());
            }
        }
        let why = governor.take_revocation()?;
        tracing::warn!(%why, "the granted rate is revoked");
        self.replace(None);
        self.revocations += 1;
        Some(why)
    }
}

#[cfg(test)]
mod tests;
