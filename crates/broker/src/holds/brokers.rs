//! What the book of joint contracts asks of the brokers of a host, and why they refuse.

use std::fmt;

use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;
use qfabric_types::{Amount, Owner, Resource};

/// The brokers of one host. Each holds an amount of its resource for a contract.
pub trait JointBrokers {
    /// The contract and owner for whom amounts are held, and what the brokers need to find them again.
    type Holder;

    /// A holder that has nothing yet.
    fn holder(&mut self, id: &JointId, owner: Owner) -> Self::Holder;

    /// Holds `most` for the contract, or as much as is free, but at least `least`, instead of what it has so far. A
    /// decrease is never refused. Amounts are in [`Amount::units`].
    ///
    /// # Errors
    /// The contract keeps what it had.
    fn set(&mut self, holder: &mut Self::Holder, resource: &Resource, most: u64, least: u64) -> Result<u64, Lack>;

    /// Frees everything that the contract holds.
    fn free(&mut self, holder: Self::Holder);

    /// Whether the brokers still hold all amounts: an administrator may have closed a link.
    fn is_whole(&self, holder: &Self::Holder) -> bool;

    /// Whether what the holder has may count under the maximum of the group `gid`.
    fn may_count_for(&self, holder: &Self::Holder, gid: u32) -> bool;
}

/// Why a broker does not hold the amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Less than the smallest useful amount is free, in [`Amount::units`].
    Short {
        free: u64,
        largest: u64,
        bound: HoldBound,
        /// What programs, and loans to other hosts, hold without a contract.
        others: u64,
    },
    /// The host does not promise this resource, such as a link that is not open.
    NoBroker,
    /// The service ends.
    Ending,
}

/// The limit that decides on the largest amount that would fit. Amounts are in [`Amount::units`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldBound {
    /// What others hold.
    Free,
    /// The maximum of the user that the contract counts against.
    User { uid: u32, cap: u64 },
    /// The maximum of the group that the contract counts against.
    Group { gid: u32, cap: u64 },
    /// The largest number of amounts that the user may hold of this resource.
    Number { uid: u32, most: u32 },
}

/// What the contracts of one initiator hold. The contracts are not named: the number of a contract is the right to its
/// parts, and a refusal crosses hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldHolder {
    /// The host that initiated the contracts.
    pub initiator: Name,
    /// Their sum, with held upgrades.
    pub amount: Amount,
}

impl fmt::Display for HoldHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "contracts of {}: {}", self.initiator, self.amount)
    }
}

/// A resource of which less than the minimum is free. Nothing was held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{resource}: asked for {asked}, at least {minimum}; {free} is free, and {largest} would fit{}{}",
    self.within(),
    self.held_by()
)]
pub struct HoldRefusal {
    pub resource: Resource,
    pub asked: Amount,
    pub minimum: Amount,
    /// The free amount on this host.
    pub free: Amount,
    /// The largest amount that would be granted: less than `free` if a maximum is the bound.
    pub largest: Amount,
    pub bound: HoldBound,
    /// Whether the minimum would fit if all holds ended that count under the bound and are not committed: a later attempt
    /// may succeed.
    pub is_transient: bool,
    /// The initiators of the contracts that count under the bound, largest amount first; at most
    /// [`HoldRefusal::MOST_HOLDERS`].
    pub holders: Vec<HoldHolder>,
    /// What programs of the host, and loans to other hosts, hold without a contract, together: the names of programs do
    /// not leave their host. `None`: not known, because the host is older, or a maximum is the bound.
    pub others: Option<Amount>,
}

impl HoldRefusal {
    /// Bounds the message that carries a refusal to another host.
    pub const MOST_HOLDERS: usize = 8;

    fn held_by(&self) -> String {
        let others = self.others.filter(|others| others.units() > 0);
        let others = others.map(|others| format!("others on that host: {others}"));
        let holders: Vec<String> = self.holders.iter().map(ToString::to_string).chain(others).collect();
        if holders.is_empty() { String::new() } else { format!("; held by {}", holders.join(", ")) }
    }

    fn within(&self) -> String {
        match self.bound {
            HoldBound::Free => String::new(),
            HoldBound::User { uid, cap } => {
                format!(" into the maximum of {} of user {uid}{}", self.resource.amount(cap), stands_for(uid))
            }
            HoldBound::Group { gid, cap } => {
                format!(" into the maximum of {} of group {gid}{}", self.resource.amount(cap), stands_for(gid))
            }
            HoldBound::Number { uid, most } => {
                format!(" into the largest number ({most}) of amounts of user {uid}{}", stands_for(uid))
            }
        }
    }
}

/// Nobody ([`Owner::NOBODY`]) has no processes: the user and the group count what other hosts hold.
fn stands_for(number: u32) -> &'static str {
    if number == Owner::NOBODY.uid { ", which counts the contracts of other hosts" } else { "" }
}

/// A contract gets nothing of this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    #[error("{0}")]
    Short(Box<HoldRefusal>),
    #[error("the host has no broker for {0}")]
    NoBroker(Resource),
    #[error("the service ends")]
    Ending,
}
