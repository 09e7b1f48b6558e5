//! The messages between coordinators and participants.

use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, Owner, Resources};

use super::{Coordinator, Participant, Reason};

/// A message about one contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractMessage {
    pub id: JointId,
    /// The attempt of the coordinator, from 1. A message of an earlier attempt is ignored.
    pub round: u32,
    pub body: Body,
}

impl ContractMessage {
    /// Gives a message to the side of this host that it is for. Only a Cancel may be for both, and it is small.
    pub fn deliver(self, from: &Name, coordinator: &mut Coordinator, participant: &mut Participant, now: Instant) {
        match self.body {
            Body::Request(_) | Body::Accept { .. } => participant.receive(from, self, now),
            Body::Offer { .. } | Body::Refuse(_) | Body::Confirm { .. } => coordinator.receive(from, self, now),
            Body::Cancel => {
                coordinator.receive(from, self.clone(), now);
                participant.receive(from, self, now);
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// To a participant: hold this vector.
    Request(PartRequest),
    /// To the coordinator: this vector is held.
    Offer {
        granted: Resources,
        /// The contract is in force, and this vector has more than the present one.
        is_upgrade: bool,
    },
    /// To the coordinator: nothing is held.
    Refuse(Reason),
    /// To a participant: commit this vector for `hold` from now. Also renews.
    Accept {
        /// Number of the Accept, increasing; a participant ignores one that a later one has overtaken.
        step: u32,
        granted: Resources,
        /// The initiator declines the held upgrade: it is free at once.
        frees_upgrade: bool,
    },
    /// To the coordinator: this vector is committed.
    Confirm {
        /// The step of the Accept.
        step: u32,
        granted: Resources,
    },
    /// To a participant: release this attempt and earlier ones. To a coordinator: the host ends the contract.
    Cancel,
}

/// What is asked of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRequest {
    /// The user and group on the initiator, which a participant on another host does not believe: there the user
    /// counts for nothing, and the group only within the cap of the initiating host.
    pub owner: Owner,
    pub wanted: Resources,
    pub minimum: Resources,
    /// The application that must consent, if any.
    pub application: Option<Name>,
    /// Whether the initiator accepts more than is granted at first, up to what is wanted.
    pub may_grow: bool,
    /// The time that a hold or a commitment lasts without a further message.
    pub hold: Nanos,
}
