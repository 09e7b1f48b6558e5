//! Offers of freed rates to the streams of the own process.

use std::time::Duration;

use qfabric_types::api::net::{OFFER_SERVICE, RateOffer};

use super::{Ecalls, MemoryUp, Subscription, SubscriptionBuilder};
use crate::error::ClientError;

/// The offers to the own process: the daemon tells it when a link has more room for one of its partly granted streams.
/// [`crate::Client::change_stream`] with the wanted size accepts. An offer reserves nothing, so the answer may be less.
#[derive(Debug)]
pub struct Offers(Subscription);

impl Offers {
    /// Receives offers from now on.
    pub fn subscribe(ecalls: &Ecalls) -> Result<Offers, ClientError> {
        let own = std::process::id() as i32;
        let wanted = SubscriptionBuilder::to(OFFER_SERVICE).only(own).memory_up(MemoryUp::default());
        ecalls.subscribe(&wanted).map(Offers)
    }

    /// The next offer; `None` if none arrives within `patience`. With no patience, a poll without a system call.
    pub fn next(&mut self, patience: Duration) -> Result<Option<RateOffer>, ClientError> {
        if patience.is_zero() {
            return Ok(self.0.try_next().and_then(|event| RateOffer::read(event.data)));
        }
        Ok(self.0.next(patience)?.and_then(|event| RateOffer::read(event.data)))
    }

    /// The subscription, for event loops ([`Subscription::wake_fd`]).
    pub fn subscription(&self) -> &Subscription {
        &self.0
    }
}
