//! One interface under packet scheduling: its streams, and the promises behind them.
//!
//! A stream is admitted twice: by the link's broker, which counts rates against the capacity and the maxima, and by
//! the test of DWCS, which looks at periods and packets. A stream that accepts less gets the largest C that both admit.

use std::collections::BTreeMap;

use qfabric_broker::{LinkBroker, LinkDemand, LinkLimits, LinkRefusal};
use qfabric_linux::net::{Attachment, NetError};
use qfabric_linux::{clock, watch};
use qfabric_sync::assert_may_block;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::SubscriptionId;
use qfabric_types::api::net::{
    HeldRateId, InterfaceInfo, LinkRequest, StreamChange, StreamId, StreamInfo, StreamPromise, StreamSpec, StreamTerms,
};
use qfabric_types::{Amount, BitRate, Direction, InterfaceName, InvalidInterfaceName, LinkEnd};

use super::leases::{self, Lease};
use super::rights::{self, Caller};
use super::{admission, links, problems};

pub(super) struct Interface {
    pub attachment: Attachment,
    /// The subscription that each stream follows.
    pub followed: BTreeMap<StreamId, SubscriptionId>,
    pub broker: LinkBroker,
    /// The promises of what the host receives. They are only counted: each sender's host limits its packets.
    pub incoming: LinkBroker,
    /// The limits of the link, if it is open to all users.
    pub opened: Option<LinkRequest>,
    /// The interface was attached to open its link, so closing the link detaches it.
    pub is_attached_for_link: bool,
    pub holders: BTreeMap<StreamId, Holder>,
    /// A rate was freed since the last look for streams that wait for one.
    pub is_freed: bool,
}

/// The promise behind a stream, beside the broker's accounts.
#[derive(Debug)]
pub(super) struct Holder {
    pub terms: StreamTerms,
    /// The wanted C.
    pub wanted: u32,
    pub is_ordinary: bool,
    /// The process with which the stream ends.
    pub process: Option<watch::Process>,
    /// The process that asked for the stream, if the stream does not end with a process.
    pub asker: Option<watch::Process>,
    /// The number of `process` or `asker`.
    pub pid: i32,
}

fn refused(error: NetError) -> Problem {
    error.problem()
}

impl Interface {
    /// An interface whose link is closed: its streams have no maximum beside the link's own.
    pub(super) fn new(name: &str, attachment: Attachment) -> Result<Interface, Problem> {
        let interface_name: InterfaceName = name.parse().map_err(|error: InvalidInterfaceName| {
            problems::invalid(error.to_string(), "list the interfaces with `ip link`")
        })?;
        let book =
            |direction| LinkBroker::new(LinkEnd { interface: interface_name.clone(), direction }, links::closed());
        Ok(Interface {
            attachment,
            followed: BTreeMap::new(),
            broker: book(Direction::Out),
            incoming: book(Direction::In),
            opened: None,
            is_attached_for_link: false,
            holders: BTreeMap::new(),
            is_freed: false,
        })
    }

    /// Sets the limits of both directions, or of none.
    pub(super) fn set_limits(&mut self, out: LinkLimits, incoming: LinkLimits) -> Result<(), Problem> {
        let refused = |refusal: LinkRefusal| refusal.problem();
        self.incoming.check_limits(&incoming).map_err(refused)?;
        self.broker.set_limits(out).map_err(refused)?;
        self.incoming.set_limits(incoming).map_err(refused)?;
        self.is_freed = true;
        Ok(())
    }

    /// Begins a stream if the link carries it beside the others. `from`: the held rate from which the stream draws.
    pub(super) fn begin(
        &mut self,
        spec: &StreamSpec,
        lease: Lease,
        from: Option<HeldRateId>,
    ) -> Result<StreamInfo, Problem> {
        let kept = self.attachment.kept(spec);
        let id = self.attachment.free_stream().map_err(refused)?;
        let Lease { owner, groups, holder: process, asker, pid, until, is_ordinary } = lease;
        let (least, wanted) = rates(&kept);
        let owner = self.broker.limits().counted(owner, &groups);
        let demand = LinkDemand { owner, name: kept.selector.to_string(), least, wanted, until };
        let admitted = match from {
            Some(held) => self.broker.draw(held, id, demand),
            None => self.broker.admit(id, demand),
        };
        let granted = admitted.map_err(|refusal| self.over(None, &kept, &refusal))?;
        let fitting = self.fitting(None, &kept, granted);
        let begun = fitting.and_then(|fitting| {
            self.attachment.begin(&fitting).map_err(refused)?;
            Ok(fitting.rate())
        });
        match begun {
            Ok(carried) => self.broker.settle(id, carried),
            Err(problem) => {
                self.broker.release(id);
                return Err(problem);
            }
        }
        let terms = spec.terms.clone();
        self.holders.insert(id, Holder { terms, wanted: kept.size, is_ordinary, process, asker, pid });
        self.stream(id)
    }

    /// Changes a stream for `caller`. A change of the lease alone leaves the packets' parameters as they are.
    pub(super) fn change(&mut self, id: StreamId, change: &StreamChange, caller: Caller) -> Result<(), Problem> {
        let spec = self.attachment.spec(id).map_err(refused)?;
        let holder = self.holders.get(&id).ok_or_else(|| self.no_stream(id))?;
        let now = StreamSpec { size: holder.wanted, terms: holder.terms.clone(), ..spec.clone() };
        let until = change.lease.map(|_| leases::until(caller, change.lease, false)).transpose()?;
        let only_lease = StreamChange { lease: change.lease, follow: change.follow, ..StreamChange::default() };
        if *change != only_lease {
            let asked = now.changed(change);
            if !caller.is_privileged {
                rights::check_attributes(&asked)?;
            }
            self.set(id, &asked)?;
        }
        if let (Some(until), Some(holder)) = (until, self.holders.get_mut(&id)) {
            holder.terms.lease = change.lease;
            self.broker.renew(id, until);
        }
        Ok(())
    }

    /// Gives a stream other parameters; after a refusal it keeps its own.
    pub(super) fn set(&mut self, id: StreamId, asked: &StreamSpec) -> Result<(), Problem> {
        qfabric_linux::net::check(asked).map_err(refused)?;
        let holder = self.holders.get(&id).ok_or_else(|| self.no_stream(id))?;
        if holder.is_ordinary {
            rights::check_attributes(asked)?;
        }
        let (kept, before) = (self.attachment.kept(asked), self.broker.clone());
        let (least, wanted) = rates(&kept);
        let granted = self.broker.want(id, least, wanted).map_err(|refusal| self.over(Some(id), &kept, &refusal))?;
        let fitting = self.fitting(Some(id), &kept, granted);
        match fitting.and_then(|fitting| self.apply(id, &fitting)) {
            Ok(carried) => self.broker.settle(id, carried),
            Err(problem) => {
                self.broker = before;
                return Err(problem);
            }
        }
        self.is_freed = true;
        if let Some(holder) = self.holders.get_mut(&id) {
            (holder.wanted, holder.terms) = (kept.size, asked.terms.clone());
        }
        Ok(())
    }

    /// Changes the stream in the kernel if it differs; returns the carried rate.
    fn apply(&mut self, id: StreamId, fitting: &StreamSpec) -> Result<BitRate, Problem> {
        let now = self.attachment.spec(id).map_err(refused)?;
        if (StreamSpec { terms: fitting.terms.clone(), ..now.clone() }) != *fitting {
            self.attachment.change(id, fitting).map_err(refused)?;
        }
        Ok(fitting.rate())
    }

    /// Ends a stream: from now on its packets are best effort.
    pub(super) fn end(&mut self, id: StreamId) -> Result<(), Problem> {
        self.attachment.end(id).map_err(refused)?;
        self.broker.release(id);
        self.followed.remove(&id);
        self.holders.remove(&id);
        self.is_freed = true;
        Ok(())
    }

    /// Raises the partly granted streams that ask for it, if a rate was freed; returns their new C.
    pub(super) fn upgrade(&mut self) -> Vec<(StreamId, u32)> {
        if !std::mem::take(&mut self.is_freed) {
            return Vec::new();
        }
        let mut raised = Vec::new();
        for offer in self.broker.offers() {
            let Some(holder) = self.holders.get(&offer.stream).filter(|holder| holder.terms.upgrade) else { continue };
            let Ok(spec) = self.attachment.spec(offer.stream) else { continue };
            let (before, terms) = (spec.size, StreamTerms { least: Some(spec.size), ..holder.terms.clone() });
            let asked = StreamSpec { size: holder.wanted, terms, ..spec.clone() };
            let kept_terms = holder.terms.clone();
            if self.set(offer.stream, &asked).is_ok() {
                let size = self.attachment.spec(offer.stream).map_or(before, |spec| spec.size);
                self.holders.entry(offer.stream).and_modify(|holder| holder.terms = kept_terms);
                raised.extend((size > before).then_some((offer.stream, size)));
            }
        }
        self.is_freed = false;
        raised
    }

    pub(super) fn info(&self) -> InterfaceInfo {
        assert_may_block("asking the kernel about an interface");
        let mut info = self.attachment.info();
        for stream in &mut info.streams {
            stream.follows = self.followed.get(&stream.id).copied();
            stream.promise = self.promise(stream.id, &stream.spec);
            stream.spec.terms = self.holders.get(&stream.id).map(|holder| holder.terms.clone()).unwrap_or_default();
        }
        info.link = self.opened.as_ref().map(|limits| links::info(&self.broker, &self.incoming, limits));
        info
    }

    fn promise(&self, id: StreamId, spec: &StreamSpec) -> StreamPromise {
        let holder = self.holders.get(&id);
        let wanted = holder.map(|holder| holder.wanted).filter(|wanted| *wanted > spec.size);
        let ends_in = self.broker.until(id).map(|until| until.since(clock::now()));
        let traffic = holder.and_then(|holder| holder.terms.traffic);
        StreamPromise {
            owner: self.broker.owner(id),
            rate_bps: spec.rate(),
            held_rate: self.broker.drawn_from(id),
            wanted,
            offer: wanted.and_then(|wanted| self.offer(id, spec, wanted)),
            ends_in,
            delay_bound: traffic.and_then(|traffic| admission::delay_bound(&self.attachment, spec, &traffic)),
        }
    }

    /// The larger C that the link would grant a partly granted stream.
    fn offer(&self, id: StreamId, spec: &StreamSpec, wanted: u32) -> Option<u32> {
        let offer = self.broker.offers().into_iter().find(|offer| offer.stream == id)?;
        let most = wanted.min(spec.size_at(offer.offered));
        let size = admission::largest(&self.attachment, Some(id), spec, most);
        Some(size).filter(|size| *size > spec.size)
    }

    pub(super) fn stream(&self, id: StreamId) -> Result<StreamInfo, Problem> {
        self.info().streams.into_iter().find(|stream| stream.id == id).ok_or_else(|| self.no_stream(id))
    }

    fn no_stream(&self, id: StreamId) -> Problem {
        NetError::NoStream { interface: self.attachment.interface().to_owned(), id }.problem()
    }

    /// The stream with the largest C, from its least to its own, that `granted` pays for and DWCS admits.
    fn fitting(
        &self,
        instead_of: Option<StreamId>,
        spec: &StreamSpec,
        granted: BitRate,
    ) -> Result<StreamSpec, Problem> {
        let most = spec.size.min(spec.size_at(granted));
        let asked = StreamSpec { size: most, ..spec.clone() };
        let fitting = match admission::check(&self.attachment, instead_of, &asked) {
            Ok(()) => asked,
            Err(refusal) => {
                let size = admission::largest(&self.attachment, instead_of, spec, most);
                if size < spec.least() {
                    return Err(with_largest(refusal, spec, size, self.broker.end()));
                }
                StreamSpec { size, ..asked }
            }
        };
        admission::check_delay(&self.attachment, &fitting)?;
        Ok(fitting)
    }

    /// The refusal of the broker. The largest rate also passes the test of DWCS.
    fn over(&self, instead_of: Option<StreamId>, spec: &StreamSpec, refusal: &LinkRefusal) -> Problem {
        let mut problem = refusal.problem();
        let size = admission::largest(&self.attachment, instead_of, spec, spec.size_at(refusal.free));
        if let Some(shortage) = &mut problem.shortage {
            shortage.largest = Amount::Network(StreamSpec { size, ..spec.clone() }.rate()).value();
        }
        problem
    }
}

/// The rates of the least C and of the wanted C.
fn rates(spec: &StreamSpec) -> (BitRate, BitRate) {
    (StreamSpec { size: spec.least(), ..spec.clone() }.rate(), spec.rate())
}

/// Adds the largest C that fits to a refusal of DWCS.
fn with_largest(mut refusal: Problem, spec: &StreamSpec, size: u32, end: &LinkEnd) -> Problem {
    let rate = StreamSpec { size, ..spec.clone() }.rate();
    if size > 0 {
        let period = spec.period;
        refusal.next_step = format!("request at most {size} bytes in {period} ({rate}), or {}", refusal.next_step);
    }
    refusal.shortage = Some(Box::new(links::shortage(end, spec.rate(), rate)));
    refusal
}
