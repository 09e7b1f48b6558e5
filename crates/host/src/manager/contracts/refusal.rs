//! Why a host refused its part of a contract.

use qfabric_broker::{HoldBound, HoldError, HoldHolder, HoldRefusal};
use qfabric_types::Amount;
use qfabric_types::Nanos;
use qfabric_types::Resource;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{JointHolder, JointRefusal};
use qfabric_types::channel::Name;

use super::{OverCap, Timing, VERSION};

/// The reason of one host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("{0}")]
    Short(Box<HoldRefusal>),
    #[error("the host has no broker for {0}")]
    NotBrokered(Resource),
    #[error("{0}")]
    NoConsent(NoConsent),
    /// The hold or the commitment is over, or the host has restarted.
    #[error("nothing is held any more")]
    Ended,
    #[error("the host already takes part in {limit} contracts")]
    Full { limit: u32 },
    #[error("over cap: {0}")]
    OverCap(OverCap),
    #[error("a hold of {given} is not within {} to {}", Timing::SHORTEST, Timing::LONGEST)]
    Hold { given: Nanos },
    #[error("the host speaks version {speaks} of contracts, this one {VERSION}")]
    Version { speaks: u8 },
    #[error("the host did not answer")]
    Silent,
    /// The answer broke the protocol, such as an offer below the minimum.
    #[error("the host's answer is not valid")]
    Invalid,
}

/// Why the application that must consent did not (QualMan, Figure 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoConsent {
    #[error("the application did not consent")]
    Declined,
    #[error("the application did not answer in time")]
    Silent,
    #[error("no program answers for the application")]
    Absent,
}

impl From<HoldError> for Reason {
    fn from(error: HoldError) -> Reason {
        match error {
            HoldError::Short(shortage) => Reason::Short(shortage),
            HoldError::NoBroker(resource) => Reason::NotBrokered(resource),
            HoldError::Ending => Reason::Ended,
        }
    }
}

impl Reason {
    /// Whether a later attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Reason::Short(shortage) => shortage.is_transient,
            Reason::Ended | Reason::Silent => true,
            _ => false,
        }
    }

    /// Whether the refusal may pass when other contracts end. Some never pass, such as a request for more than the host
    /// has; their attempts end with the patience of the request.
    pub fn is_worth_waiting(&self) -> bool {
        self.is_transient() || matches!(self, Reason::Short(_) | Reason::Full { .. } | Reason::OverCap(_))
    }

    fn next_step(&self) -> &'static str {
        match self {
            Reason::Short(shortage) if shortage.is_transient => "try again soon: other contracts are being made",
            Reason::Short(shortage) => short_of(shortage.bound),
            Reason::NotBrokered(Resource::Network(_)) => {
                "have the refusing host's administrator open the link (`qfabric net link add`), or name an open link \
                 of that host (`qfabric net link ls`)"
            }
            Reason::NotBrokered(_) => {
                "ask for other resources of this host, or have its administrator add the resource"
            }
            Reason::NoConsent(NoConsent::Declined) => "ask the user of the application",
            Reason::NoConsent(NoConsent::Silent) => "try again, or ask the user of the application whether it works",
            Reason::NoConsent(NoConsent::Absent) => {
                "start the application on that host, or have its user consent with `qfabric contract consent`"
            }
            Reason::Ended => "try again",
            Reason::Full { .. } => "end a contract that is not needed (`qfabric contract ls`)",
            Reason::OverCap(_) => {
                "ask for less, end a contract (`qfabric contract ls`), or have the refusing host's administrator raise the cap"
            }
            Reason::Hold { .. } => "set another hold time in the configuration",
            Reason::Version { .. } | Reason::Invalid => "update the daemon of the older host",
            Reason::Silent => "check that the host is up and its daemon knows contracts (`qfabric group ls`)",
        }
    }
}

fn shown(holder: &HoldHolder) -> JointHolder {
    JointHolder { initiator: holder.initiator.clone(), amount: holder.amount.value() }
}

fn short_of(bound: HoldBound) -> &'static str {
    match bound {
        HoldBound::Free => "ask for less, lower the minimum, or end another contract (`qfabric contract ls`)",
        HoldBound::User { .. } => {
            "ask for less, or have the refusing host's administrator raise the maximum of the user"
        }
        HoldBound::Group { .. } => {
            "ask for less, or have the refusing host's administrator raise the maximum of the group"
        }
        HoldBound::Number { .. } => "end another contract (`qfabric contract ls`), or have that limit raised",
    }
}

/// A host refused its part, so the contract is refused. Nothing is held afterwards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host {host} refused: {reason}")]
pub struct Refused {
    pub host: Name,
    pub reason: Reason,
}

impl Refused {
    pub fn problem(&self) -> Problem {
        Problem::new("contract_refused", self.to_string(), self.reason.next_step())
    }

    /// The answer for users and tools.
    pub fn answer(&self) -> JointRefusal {
        let (refused_by, problem) = (self.host.clone(), self.problem());
        let (resource, asked, free, largest, holders, others) = Default::default();
        let without = JointRefusal { refused_by, resource, asked, free, largest, holders, others, problem };
        match &self.reason {
            Reason::Short(shortage) => JointRefusal {
                resource: Some(shortage.resource.clone()),
                asked: Some(shortage.asked.value()),
                free: Some(shortage.free.value()),
                largest: Some(shortage.largest.value()),
                holders: shortage.holders.iter().map(shown).collect(),
                others: shortage.others.map(Amount::value),
                ..without
            },
            Reason::OverCap(OverCap::Amount { resource, asked, left, .. }) => JointRefusal {
                resource: Some(resource.clone()),
                asked: Some(asked.value()),
                largest: Some(left.value()),
                ..without
            },
            Reason::NotBrokered(resource) => {
                JointRefusal { resource: Some(resource.clone()), free: Some(0.0), largest: Some(0.0), ..without }
            }
            _ => without,
        }
    }
}
