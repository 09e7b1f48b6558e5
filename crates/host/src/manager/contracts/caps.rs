//! Caps on the contracts of each initiating host, and of each user group of it.
//!
//! A contract counts with the amounts that it may grow to, so that no upgrade exceeds a cap. The group is the one that
//! the initiator names: a host that lies about it gets nothing beyond its own cap, and takes nothing from the groups of
//! other hosts.

use std::collections::BTreeMap;
use std::fmt;

use qfabric_types::channel::Name;
use qfabric_types::{Amount, Resource, Resources};

use super::{PartRequest, Reason};

/// Bounds of several contracts together, on one host. An absent bound does not limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// Largest number of contracts.
    pub contracts: Option<u32>,
    /// Largest amounts in the units of [`Amount::units`].
    pub amounts: BTreeMap<Resource, u64>,
}

/// The caps of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitiatorCaps {
    /// By initiating host. The contracts of the own host have no cap here: the maxima of its users hold for them.
    pub hosts: BTreeMap<Name, Cap>,
    /// The cap of other hosts that `hosts` does not name.
    pub default_host: Cap,
    /// By user group, for each initiating host by itself, also for the own one.
    pub groups: BTreeMap<u32, Cap>,
}

impl Default for InitiatorCaps {
    /// One host can take a quarter of the places that a participant has for other hosts.
    fn default() -> Self {
        let default_host = Cap { contracts: Some(1_024), amounts: BTreeMap::new() };
        InitiatorCaps { hosts: BTreeMap::new(), default_host, groups: BTreeMap::new() }
    }
}

/// The contracts that a cap holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapScope {
    Host,
    /// The contracts of one user group, by its number on the initiating host.
    Group(u32),
}

impl fmt::Display for CapScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CapScope::Host => f.write_str("the initiating host"),
            CapScope::Group(gid) => write!(f, "user group {gid} of the initiating host"),
        }
    }
}

/// A request exceeds a cap. Nothing was held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverCap {
    #[error("{scope} asked for one more than its cap of {cap} contracts")]
    Contracts { scope: CapScope, cap: u32 },
    #[error("{scope} asked for {asked} of {resource}, at least {minimum}; {left} of its cap of {cap} is left")]
    Amount { scope: CapScope, resource: Resource, asked: Amount, minimum: Amount, cap: Amount, left: Amount },
}

impl InitiatorCaps {
    /// The amounts of the request that its caps allow. `initiator` is `None` for the own host; `others` are its other
    /// contracts here.
    ///
    /// # Errors
    /// The caps allow less than the minimum of a resource, or no further contract.
    pub(super) fn admit<'a>(
        &self,
        initiator: Option<&Name>,
        part: &PartRequest,
        others: impl Iterator<Item = &'a PartRequest> + Clone,
    ) -> Result<Resources, Reason> {
        let host = initiator.map(|host| self.hosts.get(host).unwrap_or(&self.default_host));
        let group = self.groups.get(&part.owner.gid);
        let of_group = others.clone().filter(|other| other.owner.gid == part.owner.gid);
        let mut allowed = part.wanted.clone();
        if let Some(cap) = host {
            cap.limit(CapScope::Host, part, others, &mut allowed).map_err(Reason::OverCap)?;
        }
        if let Some(cap) = group {
            cap.limit(CapScope::Group(part.owner.gid), part, of_group, &mut allowed).map_err(Reason::OverCap)?;
        }
        Ok(allowed)
    }
}

impl Cap {
    /// Lowers `allowed` to what the contracts of the scope leave.
    fn limit<'a>(
        &self,
        scope: CapScope,
        part: &PartRequest,
        others: impl Iterator<Item = &'a PartRequest> + Clone,
        allowed: &mut Resources,
    ) -> Result<(), OverCap> {
        if let Some(cap) = self.contracts.filter(|cap| others.clone().count() >= *cap as usize) {
            return Err(OverCap::Contracts { scope, cap });
        }
        for (resource, cap) in &self.amounts {
            let used: u64 = others.clone().map(|other| other.wanted.units(resource)).sum();
            let left = cap.saturating_sub(used);
            if left < part.minimum.units(resource) {
                return Err(over(scope, resource, part, (*cap, left)));
            }
            if left < allowed.units(resource) {
                allowed.put(resource, left);
            }
        }
        Ok(())
    }
}

fn over(scope: CapScope, resource: &Resource, part: &PartRequest, (cap, left): (u64, u64)) -> OverCap {
    let amount = |units| resource.amount(units);
    let [asked, minimum] = [&part.wanted, &part.minimum].map(|vector| amount(vector.units(resource)));
    OverCap::Amount { scope, resource: resource.clone(), asked, minimum, cap: amount(cap), left: amount(left) }
}

#[cfg(test)]
mod tests;
