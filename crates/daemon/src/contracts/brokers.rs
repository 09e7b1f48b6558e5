//! The brokers of this host, as joint contracts use them: each holds an amount of its resource for a contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_types::api::contracts::JointId;
use qfabric_types::api::net::HeldRateId;
use qfabric_types::{BitRate, Bytes, LinkEnd, Owner, Resource, Share};

use crate::control::{Requests, ShareHold};
use crate::memory::Memory;
use crate::net::Links;

/// The brokers. Calls may wait for the control thread, and for an exchange with the kernel.
pub(super) struct Brokers {
    pub requests: Requests,
    pub memory: Arc<Memory>,
    pub links: Links,
}

/// The contract and the owner for whom amounts are held, with the numbers of the held rates.
#[derive(Debug)]
pub(super) struct Holder {
    pub id: JointId,
    pub owner: Owner,
    pub links: BTreeMap<LinkEnd, HeldRateId>,
    /// Whether the control thread knows the contract, so that applications can draw from it.
    has_share: bool,
}

/// Why a broker does not hold the amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// Less than the smallest useful amount is free, in the units of [`qfabric_types::Amount::units`].
    Short { free: u64, largest: u64 },
    /// The link is not open.
    NoBroker,
    /// The service ends.
    Ending,
}

impl Holder {
    pub(super) fn new(id: JointId, owner: Owner) -> Holder {
        Holder { id, owner, links: BTreeMap::new(), has_share: false }
    }
}

impl Brokers {
    /// Holds `most` for the contract, or as much as is free, but at least `least`, instead of what it has so far. A
    /// decrease is never refused.
    ///
    /// # Errors
    /// The contract keeps what it had.
    pub(super) fn set(&self, holder: &mut Holder, resource: &Resource, most: u64, least: u64) -> Result<u64, Lack> {
        match resource {
            Resource::Cpu => self.set_share(holder, most, least),
            Resource::Memory => self.set_memory(holder, most, least),
            Resource::Network(end) => self.set_rate(holder, end, most, least),
        }
    }

    /// Frees everything that the contract holds.
    pub(super) fn free(&self, holder: &Holder) {
        // First, because the applications that draw from the contract leave with their memory.
        if holder.has_share {
            self.requests.free_share(holder.id.clone());
        }
        self.memory.free_held(&holder.id);
        holder.links.values().for_each(|rate| self.links.release(*rate));
    }

    /// Whether all rates of the contract are still held: the administrator may have closed a link.
    pub(super) fn has_rates(&self, holder: &Holder) -> bool {
        holder.links.values().all(|rate| self.links.rate(*rate).is_some())
    }

    fn set_share(&self, holder: &mut Holder, most: u64, least: u64) -> Result<u64, Lack> {
        let share = |units: u64| Share::from_ppm(u32::try_from(units).unwrap_or(u32::MAX));
        let (id, owner) = (holder.id.clone(), holder.owner);
        let hold = ShareHold { id, owner, most: share(most), least: share(least) };
        let answer = self.requests.hold_share(hold).ok_or(Lack::Ending)?;
        holder.has_share |= answer.is_ok();
        let short =
            answer.map_err(|short| Lack::Short { free: short.free.ppm().into(), largest: short.largest.ppm().into() });
        short.map(|granted| granted.ppm().into())
    }

    fn set_memory(&self, holder: &mut Holder, most: u64, least: u64) -> Result<u64, Lack> {
        if !holder.has_share {
            self.set_share(holder, 0, 0)?;
        }
        let held = self.memory.hold(&holder.id, holder.owner, Bytes::new(most), Bytes::new(least));
        let short = held.map_err(|refusal| Lack::Short { free: refusal.free.get(), largest: refusal.largest.get() });
        short.map(Bytes::get)
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
            Err(problem) => lack(problem.shortage.as_deref()),
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
        let held = self.links.hold(holder.owner, end, BitRate::new(most), BitRate::new(least), &name);
        let (rate, granted) = held.map_err(|problem| lack(problem.shortage.as_deref()))?;
        holder.links.insert(end.clone(), rate);
        Ok(granted.get())
    }
}

fn lack(shortage: Option<&qfabric_types::api::Shortage>) -> Lack {
    // Rates are whole numbers below 2^53.
    let amounts =
        |short: &qfabric_types::api::Shortage| Lack::Short { free: short.free as u64, largest: short.largest as u64 };
    shortage.map_or(Lack::NoBroker, amounts)
}
