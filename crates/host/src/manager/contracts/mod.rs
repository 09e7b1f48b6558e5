//! Joint contracts: resources of several hosts, all or nothing, on the terms of the lending protocol
//! (`super::requests`): an offer holds its amount, a hold expires, an accepted offer is confirmed.
//!
//! ```text
//!   initiator: Coordinator              each host: Participant                     its broker: Holds
//!   Request ──> every host              Order::Hold ─────────────────────────────> whole vector, or none
//!                                       the local application is asked (Figure 8)
//!   all offered  <── Offer, Refuse
//!   Accept ──> every host               Order::Commit ───────────────────────────> committed for `hold`
//!   all confirmed: in force  <── Confirm
//!   Accept again, before the time is over (renewal) ...                            committed for `hold` more
//!   one refused, is silent, or ends: Cancel ──> every host                         released
//!   Accept with more  <── Offer (upgrade) <── capacity became free                 the difference is held
//!   Accept that frees the upgrade: it is declined                                  the difference is released
//! ```
//! * Nobody waits for a resource while holding one: a participant refuses at once, and the coordinator then cancels
//!   all holds and tries again after a random time, a bounded number of times. So no deadlock can occur.
//! * A request with patience is tried again until its time is over; nothing is held between its attempts.
//! * [`InitiatorCaps`] bounds the contracts of each initiating host, and of each user group of it.
//! * Every hold and commitment lasts `hold` after the last message of its coordinator, so a crash leaks nothing.
//! * The coordinator counts the time from sending and the participant from arrival, so a contract that is in force
//!   is committed on all its hosts, whatever the clocks show.
//!
//! Source: QualMan §2.3, §5.1.3 (Figure 8), §5.1.4.

mod book;
mod caps;
mod coordinator;
mod message;
mod participant;
mod refusal;
mod timing;
mod wire;

pub use book::carry_out;
pub use caps::{Cap, CapScope, InitiatorCaps, OverCap};
pub use coordinator::{Coordinator, CoordinatorOutput};
pub use message::{Body, ContractMessage, PartRequest};
pub use participant::{Answer, Order, Participant, ParticipantOutput};
pub use refusal::{NoConsent, Reason, Refused};
pub use timing::{AnswerTimes, Timing};
pub use wire::{CONTRACT, NotReadable, VERSION};

use qfabric_types::channel::{ChannelId, Name, Plane};

/// The group of the hosts that take part in contracts of other hosts.
pub fn group() -> Name {
    "contracts".parse().expect("is a name")
}

/// The Q-channel of the group: the only one that carries messages about contracts. Its access list decides which hosts
/// may send and receive them.
pub fn channel() -> ChannelId {
    ChannelId { plane: Plane::Quality, name: "group.contracts".parse().expect("is a name") }
}
