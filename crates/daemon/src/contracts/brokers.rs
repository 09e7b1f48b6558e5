//! The brokers of this host, as joint contracts use them: each holds an amount of its resource for a contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_broker::{HoldBound, JointBrokers, Lack, LinkBound, MemoryBound, MemoryRefusal};
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::net::HeldRateId;
use qfabric_types::{BitRate, Bytes, LinkEnd, Owner, Resource, Share};

use crate::control::{Requests, ShareHold, ShareShortage};
use crate::memory::Memory;
use crate::net::{HoldRequest, Links, RateRefusal};

/// The brokers. Calls may wait for the control thread, and for an exchange with the kernel.
pub(super) struct Brokers {
    pub requests: Requests,
    pub memory: Arc<Memory>,
    pub links: Links,
    /// The groups of the programs of this host that asked for contracts. Contracts of other hosts have none.
    pub groups: BTreeMap<JointId, Vec<u32>>,
}

/// The contract and the owner for whom amounts are held, with the numbers of the held rates.
#[derive(Debug)]
pub(super) struct Holder {
    pub id: JointId,
    pub owner: Owner,
    /// All groups of the program that asked: for each resource, the one with the smallest maximum counts.
    groups: Vec<u32>,
    pub links: BTreeMap<LinkEnd, HeldRateId>,
    /// Whether the control thread knows the contract, so that applications can draw from it.
    has_share: bool,
}

impl JointBrokers for Brokers {
    type Holder = Holder;

    fn holder(&mut self, id: &JointId, owner: Owner) -> Holder {
        let groups = self.groups.get(id).cloned().unwrap_or_default();
        Holder { id: id.clone(), owner, groups, links: BTreeMap::new(), has_share: false }
    }

    fn set(&mut self, holder: &mut Holder, resource: &Resource, most: u64, least: u64) -> Result<u64, Lack> {
        match resource {
            Resource::Cpu => self.set_share(holder, most, least),
            Resource::Memory => self.set_memory(holder, most, least),
            Resource::Network(end) => self.set_rate(holder, end, most, least),
        }
    }

    fn free(&mut self, holder: Holder) {
        // First, because the applications that draw from the contract leave with their memory.
        if holder.has_share {
            self.requests.free_share(holder.id.clone());
        }
        self.memory.free_held(&holder.id);
        holder.links.values().for_each(|rate| self.links.release(*rate));
    }

    /// An administrator may have closed a link; the other amounts last as long as the daemon.
    fn is_whole(&self, holder: &Holder) -> bool {
        holder.links.values().all(|rate| self.links.rate(*rate).is_some())
    }

    fn may_count_for(&self, holder: &Holder, gid: u32) -> bool {
        holder.owner.gid == gid || holder.groups.contains(&gid)
    }
}

impl Brokers {
    fn set_share(&self, holder: &mut Holder, most: u64, least: u64) -> Result<u64, Lack> {
        let share = |units: u64| Share::from_ppm(u32::try_from(units).unwrap_or(u32::MAX));
        let (id, owner, groups) = (holder.id.clone(), holder.owner, holder.groups.clone());
        let hold = ShareHold { id, owner, groups, most: share(most), least: share(least) };
        let answer = self.requests.hold_share(hold).ok_or(Lack::Ending)?;
        holder.has_share |= answer.is_ok();
        let units = |share: Share| share.ppm().into();
        let lack = |short: ShareShortage| Lack::Short {
            free: units(short.free),
            largest: units(short.largest),
            bound: short.bound,
            others: units(short.others),
        };
        answer.map(units).map_err(lack)
    }

    fn set_memory(&self, holder: &mut Holder, most: u64, least: u64) -> Result<u64, Lack> {
        if !holder.has_share {
            self.set_share(holder, 0, 0)?;
        }
        let (owner, groups) = (holder.owner, holder.groups.as_slice());
        let held = self.memory.hold(&holder.id, owner, groups, Bytes::new(most), Bytes::new(least));
        held.map(Bytes::get).map_err(|refusal| of_memory(&refusal, self.memory.without_contract()))
    }

    fn set_rate(&self, holder: &mut Holder, end: &LinkEnd, most: u64, least: u64) -> Result<u64, Lack> {
        let Some(rate) = holder.links.get(end).copied() else { return self.new_rate(holder, end, most, least) };
        if most == 0 {
            self.links.release(rate);
            holder.links.remove(end);
            return Ok(0);
        }
        let refused = match self.links.resize(rate, BitRate::new(most)) {
            Ok(()) => return Ok(most),
            // A decrease is never refused: streams that drew from an upgrade end with it.
            Err(RateRefusal::Link { refusal, .. }) if matches!(refusal.bound, LinkBound::Drawn { .. }) => {
                let lowered = self.links.lower(rate, BitRate::new(most));
                return lowered.map(|()| most).map_err(|refusal| of_link(&refusal));
            }
            Err(refusal) => of_link(&refusal),
        };
        match refused {
            Lack::Short { largest, .. } if largest >= least && largest > 0 => {
                self.links.resize(rate, BitRate::new(largest)).map(|()| largest).map_err(|_| refused)
            }
            _ => Err(refused),
        }
    }

    fn new_rate(&self, holder: &mut Holder, end: &LinkEnd, most: u64, least: u64) -> Result<u64, Lack> {
        if most == 0 {
            return Ok(0);
        }
        // The number is the right to the parts on other hosts, and every user may read refusals.
        let name = format!("contract of {}", holder.id.host);
        let (wanted, least) = (BitRate::new(most), BitRate::new(least));
        let request = HoldRequest { owner: holder.owner, groups: &holder.groups, end, wanted, least, name: &name };
        let (rate, granted) = self.links.hold(request).map_err(|refusal| of_link(&refusal))?;
        holder.links.insert(end.clone(), rate);
        Ok(granted.get())
    }
}

/// `others`: what is promised without a contract.
fn of_memory(refusal: &MemoryRefusal, others: Bytes) -> Lack {
    let bound = match refusal.bound {
        MemoryBound::Reserve(_) => HoldBound::Free,
        MemoryBound::User { uid, cap } => HoldBound::User { uid, cap: cap.get() },
        MemoryBound::Group { gid, cap } => HoldBound::Group { gid, cap: cap.get() },
        MemoryBound::Reserves { uid, most } => HoldBound::Number { uid, most: u32::try_from(most).unwrap_or(u32::MAX) },
    };
    Lack::Short { free: refusal.free.get(), largest: refusal.largest.get(), bound, others: others.get() }
}

fn of_link(refusal: &RateRefusal) -> Lack {
    let (free, others, refusal) = match refusal {
        RateRefusal::Link { free, streams, refusal } => (free.get(), streams.get(), refusal),
        RateRefusal::Other(problem) if problem.code == "stopping" => return Lack::Ending,
        RateRefusal::Other(_) => return Lack::NoBroker,
    };
    let (largest, bound) = match refusal.bound {
        LinkBound::User { uid, cap } => (refusal.free.get(), HoldBound::User { uid, cap: cap.get() }),
        LinkBound::Group { gid, cap } => (refusal.free.get(), HoldBound::Group { gid, cap: cap.get() }),
        LinkBound::HeldRates { uid, most } | LinkBound::Streams { uid, most } => (0, HoldBound::Number { uid, most }),
        _ => (refusal.free.get(), HoldBound::Free),
    };
    Lack::Short { free, largest, bound, others }
}
