//! Rates that are promised without a stream, such as the part of a joint contract on this link. Streams may draw from a
//! held rate: they are counted within it.

use std::collections::BTreeMap;

use qfabric_types::BitRate;
use qfabric_types::api::net::{HeldRateId, StreamId};

use super::{LinkBroker, LinkDemand, Promise};
use crate::link_refusal::{LinkBound, LinkRefusal, LinkUse};

impl LinkBroker {
    /// Promises a rate without a stream: the wanted rate, or as much as is free, but at least the least. It has no lease:
    /// the end of the demand's lease is ignored.
    ///
    /// # Errors
    /// Less than `least` is free, or the user holds too many rates. A refusal changes nothing.
    pub fn hold(&mut self, id: HeldRateId, demand: LinkDemand) -> Result<BitRate, LinkRefusal> {
        assert!(!self.held.contains_key(&id), "rate {id} is held twice");
        self.check_held_number(demand.owner.uid)?;
        let granted = self.grant(None, &demand, None)?;
        self.admitted += 1;
        self.held.insert(id, Promise { demand, granted, order: self.admitted, within: None });
        Ok(granted)
    }

    /// Changes a held rate to exactly `rate`. An unknown one is ignored.
    ///
    /// # Errors
    /// The increase does not fit, or streams draw more than `rate`; the old rate stays in force.
    pub fn resize(&mut self, id: HeldRateId, rate: BitRate) -> Result<(), LinkRefusal> {
        let Some(promise) = self.held.get(&id) else { return Ok(()) };
        let drawn = self.drawn(id);
        if rate < drawn {
            return Err(self.refusal(LinkBound::Drawn { id, drawn }, rate, rate));
        }
        let demand = LinkDemand { least: rate, wanted: rate, ..promise.demand.clone() };
        if rate > promise.granted {
            self.grant(Some(LinkUse::Held(id)), &demand, None)?;
        }
        if let Some(promise) = self.held.get_mut(&id) {
            (promise.demand, promise.granted) = (demand, rate);
        }
        Ok(())
    }

    /// Frees a held rate. The streams that draw from it have no promise any more; returns them.
    pub fn give_back(&mut self, id: HeldRateId) -> Vec<StreamId> {
        self.held.remove(&id);
        let drawing = |(_, promise): &(&StreamId, &Promise)| promise.within == Some(id);
        let streams: Vec<StreamId> = self.promises.iter().filter(drawing).map(|(stream, _)| *stream).collect();
        streams.iter().for_each(|stream| self.release(*stream));
        streams
    }

    /// Admits a stream that draws from a held rate, so that its rate is not counted twice. The other verbs treat it like
    /// any stream; it grows up to the held rate, and its end leaves the held rate as it is.
    ///
    /// # Errors
    /// Less than `least` of the held rate is left, there is no such rate, or the user has too many streams.
    pub fn draw(&mut self, from: HeldRateId, stream: StreamId, demand: LinkDemand) -> Result<BitRate, LinkRefusal> {
        self.begin(stream, demand, Some(from))
    }

    /// A held rate with its user.
    pub fn held(&self, id: HeldRateId) -> Option<(BitRate, u32)> {
        self.held.get(&id).map(|promise| (promise.granted, promise.demand.owner.uid))
    }

    /// All held rates.
    pub fn all_held(&self) -> impl Iterator<Item = HeldRateId> {
        self.held.keys().copied()
    }

    /// The held rate from which a stream draws.
    pub fn drawn_from(&self, stream: StreamId) -> Option<HeldRateId> {
        self.promises.get(&stream)?.within
    }

    /// Sum of the rates of the streams that draw from a held rate.
    pub fn drawn(&self, id: HeldRateId) -> BitRate {
        self.promises.values().filter(|promise| promise.within == Some(id)).map(|promise| promise.granted).sum()
    }

    /// The part of each held rate from which no stream but `without` draws.
    pub(super) fn undrawn(&self, without: Option<LinkUse>) -> BTreeMap<HeldRateId, BitRate> {
        let mut left: BTreeMap<_, _> = self.held.iter().map(|(id, promise)| (*id, promise.granted)).collect();
        for (stream, promise) in &self.promises {
            let rate = promise.within.and_then(|id| left.get_mut(&id));
            if let Some(rate) = rate.filter(|_| Some(LinkUse::Stream(*stream)) != without) {
                *rate = *rate - promise.granted;
            }
        }
        left
    }

    fn check_held_number(&self, uid: u32) -> Result<(), LinkRefusal> {
        let has = self.held.values().filter(|promise| promise.demand.owner.uid == uid).count();
        let most = self.limits.streams_per_user;
        match has < most as usize || self.limits.exempt.contains(&uid) {
            true => Ok(()),
            false => Err(self.refusal(LinkBound::HeldRates { uid, most }, BitRate::ZERO, BitRate::ZERO)),
        }
    }
}
