//! Rates that are promised without a stream: the parts of joint contracts, and of loans, on the links of this host.
//! They count in the same books as streams, so that other requests, lists and refusals see them.
//!
//! Only the direction *out* is enforced, by streams that draw from the rate. The direction *in* is counted: the packets
//! are limited by the promise of the host that sends them.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_broker::{LinkBroker, LinkDemand, LinkRefusal, LinkUse};
use qfabric_types::api::Problem;
use qfabric_types::api::net::{HeldRateId, StreamInfo, StreamSpec};
use qfabric_types::{BitRate, Direction, LinkEnd, Owner};

use super::interface::Interface;
use super::rights::Caller;
use super::{Net, State, lease, problems};
use crate::auth::Peer;
use crate::problem;

/// Longest name of a held rate, in characters; the rest is cut.
const LONGEST_NAME: usize = 64;

/// The links of all held rates.
#[derive(Default)]
pub(super) struct Ends {
    ends: BTreeMap<HeldRateId, LinkEnd>,
    last: HeldRateId,
}

/// A rate that is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldRequest<'a> {
    /// The user that the rate counts against.
    pub owner: Owner,
    /// The groups of the owner's program; the rate counts against the one with the smallest maximum.
    pub groups: &'a [u32],
    pub end: &'a LinkEnd,
    pub wanted: BitRate,
    /// If less than this is free, nothing is held.
    pub least: BitRate,
    /// The name in refusals and lists.
    pub name: &'a str,
}

/// Why a rate is not held.
#[derive(Debug)]
pub(crate) enum RateRefusal {
    /// The link does not have it.
    Link {
        /// The free rate of the link, whatever the owner's maximum.
        free: BitRate,
        /// The rate that streams have on the link, without those that draw from a held rate.
        streams: BitRate,
        refusal: Box<LinkRefusal>,
    },
    /// The link is not open, the rate is not held, or the service ends.
    Other(Problem),
}

impl RateRefusal {
    fn of(broker: &LinkBroker, refusal: LinkRefusal) -> RateRefusal {
        let streams = broker.holders().into_iter().filter(|holder| matches!(holder.by, LinkUse::Stream(_)));
        let streams = streams.map(|holder| holder.rate).sum();
        RateRefusal::Link { free: broker.free(), streams, refusal: Box::new(refusal) }
    }
}

impl From<Problem> for RateRefusal {
    fn from(problem: Problem) -> RateRefusal {
        RateRefusal::Other(problem)
    }
}

/// Holds rates on the open links of this host. Every call may wait for an exchange with the kernel, so no thread with a
/// budget (SCHED_DEADLINE) makes one.
#[derive(Clone)]
pub(crate) struct Links(Arc<Net>);

impl Links {
    pub(crate) fn of(net: &Arc<Net>) -> Links {
        Links(net.clone())
    }

    /// Promises the wanted rate of an open link, or as much as is free, but at least the least one. The rate is held
    /// until [`Links::release`], or until the administrator closes the link.
    ///
    /// # Errors
    /// The link is not open, or less than the least rate is free; nothing is held then.
    pub(crate) fn hold(&self, request: HoldRequest<'_>) -> Result<(HeldRateId, BitRate), RateRefusal> {
        self.0.state().hold(request)
    }

    /// Changes a held rate to exactly `rate`.
    ///
    /// # Errors
    /// The increase does not fit, streams draw more than `rate`, or the rate is not held any more. Nothing changes.
    pub(crate) fn resize(&self, id: HeldRateId, rate: BitRate) -> Result<(), RateRefusal> {
        let mut state = self.0.state();
        let (entry, direction) = state.holding(id)?;
        let broker = entry.book(direction);
        broker.resize(id, rate).map_err(|refusal| RateRefusal::of(broker, refusal))?;
        entry.is_freed = true;
        Ok(())
    }

    /// Lowers a held rate. Streams that draw more than remains end, the largest first.
    ///
    /// # Errors
    /// The rate is not held any more, or the kernel does not end a stream.
    pub(crate) fn lower(&self, id: HeldRateId, rate: BitRate) -> Result<(), RateRefusal> {
        let mut state = self.0.state();
        let (entry, direction) = state.holding(id)?;
        while direction == Direction::Out && entry.broker.drawn(id) > rate {
            let broker = &entry.broker;
            let drawing = entry.holders.keys().copied().filter(|stream| broker.drawn_from(*stream) == Some(id));
            let Some(largest) = drawing.max_by_key(|stream| broker.promise(*stream)) else { break };
            entry.end(largest)?;
        }
        let broker = entry.book(direction);
        broker.resize(id, rate).map_err(|refusal| RateRefusal::of(broker, refusal))?;
        entry.is_freed = true;
        Ok(())
    }

    /// Frees a held rate, and ends the streams that draw from it. A rate that is not held any more is ignored.
    pub(crate) fn release(&self, id: HeldRateId) {
        self.0.state().release(id);
    }

    /// The rate that is held; `None` after [`Links::release`], and after the administrator closed the link.
    pub(crate) fn rate(&self, id: HeldRateId) -> Option<BitRate> {
        let mut state = self.0.state();
        let (entry, direction) = state.holding(id).ok()?;
        entry.book(direction).held(id).map(|(rate, _)| rate)
    }

    /// Begins a stream that draws from a held rate: its rate is counted within the held rate. A rate of nobody belongs to a
    /// contract of another host, or to a loan; its number is the right to it, and the caller knows the number. The
    /// stream belongs to the caller, and takes only the caller's packets.
    ///
    /// # Errors
    /// The rate belongs to another user of this host, is not held or is one of direction *in*, less of it is left than the stream
    /// needs, the packets may belong to other users, or DWCS does not admit the stream's periods.
    pub(crate) fn begin(&self, peer: Peer, id: HeldRateId, spec: &StreamSpec) -> Result<StreamInfo, Problem> {
        let caller = Caller::of(peer);
        let mut state = self.0.state();
        let (entry, direction) = state.holding(id)?;
        if direction == Direction::In {
            return Err(problems::only_counted(id));
        }
        let owner = entry.broker.held(id).map_or(0, |(_, uid)| uid);
        if !caller.is_privileged && ![peer.owner.uid, Owner::NOBODY.uid].contains(&owner) {
            return Err(problems::not_your_rate(id, owner, peer.owner.uid));
        }
        let lease = lease(caller, spec)?;
        entry.begin(spec, lease, Some(id))
    }
}

impl State {
    /// Promises a rate, as [`Links::hold`] does.
    pub(super) fn hold(&mut self, request: HoldRequest<'_>) -> Result<(HeldRateId, BitRate), RateRefusal> {
        let HoldRequest { owner, groups, end, wanted, least, name } = request;
        if wanted == BitRate::ZERO {
            return Err(problems::invalid(format!("{end}: the wanted rate is 0"), "ask for at least 1 bit/s").into());
        }
        if self.is_over {
            return Err(problem::stopping().into());
        }
        let id = self.held.last + 1;
        let entry = self.attached.get_mut(end.interface.as_str()).filter(|entry| entry.opened.is_some());
        let entry = entry.ok_or_else(|| problems::not_open_yet(end.interface.as_str()))?;
        let broker = entry.book(end.direction);
        let owner = broker.limits().counted(owner, groups);
        let name = name.chars().take(LONGEST_NAME).collect();
        let granted = broker.hold(id, LinkDemand { owner, name, least, wanted, until: None });
        let granted = granted.map_err(|refusal| RateRefusal::of(broker, refusal))?;
        self.held.last = id;
        self.held.ends.insert(id, end.clone());
        Ok((id, granted))
    }

    /// Frees a held rate, as [`Links::release`] does.
    pub(super) fn release(&mut self, id: HeldRateId) {
        if let Ok((entry, direction)) = self.holding(id)
            && let Err(problem) = entry.give_back(id, direction)
        {
            tracing::warn!(held_rate = id, "a stream of the freed rate has not ended: {problem}");
        }
        self.held.ends.remove(&id);
    }

    /// The interface and direction of a held rate.
    fn holding(&mut self, id: HeldRateId) -> Result<(&mut Interface, Direction), Problem> {
        let LinkEnd { interface, direction } = self.held.ends.get(&id).ok_or_else(|| problems::not_held(id))?;
        let entry = self.attached.get_mut(interface.as_str()).ok_or_else(|| problems::not_held(id))?;
        match entry.book(*direction).held(id) {
            Some(_) => Ok((entry, *direction)),
            None => Err(problems::not_held(id)),
        }
    }
}

impl Interface {
    fn book(&mut self, direction: Direction) -> &mut LinkBroker {
        match direction {
            Direction::Out => &mut self.broker,
            Direction::In => &mut self.incoming,
        }
    }

    /// Frees all held rates, because the link closes.
    pub(super) fn give_back_all(&mut self) -> Result<(), Problem> {
        for direction in [Direction::Out, Direction::In] {
            for id in self.book(direction).all_held().collect::<Vec<_>>() {
                self.give_back(id, direction)?;
            }
        }
        Ok(())
    }

    /// Frees a held rate and ends its streams; an error names the last stream that has not ended.
    fn give_back(&mut self, id: HeldRateId, direction: Direction) -> Result<(), Problem> {
        self.is_freed = true;
        let streams = self.book(direction).give_back(id);
        let mut all = Ok(());
        for stream in streams {
            all = self.end(stream).and(all);
        }
        all
    }
}

#[cfg(test)]
mod tests;
