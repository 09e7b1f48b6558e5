//! One host as one value: controllers, supervisor and the order in which reservations are changed.
//!
//! Feed it what happened ([`Host::handle`]), take what is to be done ([`Host::poll`]) until it says nothing
//! more, come back at [`Host::next_wakeup`]. It reads no clock and does no I/O: the daemon runs it over
//! Linux, the simulator over a modelled processor. Beside it, [`monitor`] says when which attribute is looked at.
#![forbid(unsafe_code)]

mod activation;
mod app;
mod consumption;
mod found;
mod host;
mod ledger;
pub mod manager;
pub mod monitor;
mod problem;
mod rhythm;
mod thread;
mod words;

pub use host::Host;
pub use qfabric_broker::Limits;
pub use words::{HostConfig, HostEvent, Input, Outcome, Output};

use host::HYSTERESIS;
