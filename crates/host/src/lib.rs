//! One host as a value: controllers, supervisor, and the order in which reservations change.
//!
//! Give every event to [`Host::handle`], take outputs from [`Host::poll`] until there are none, and come back at
//! [`Host::next_wakeup`]. The host reads no clock and does no I/O: the daemon runs it on Linux, the simulator on a
//! model of the processor. [`monitor`] decides when which attribute is read.
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
mod utility;
mod words;

pub use host::{CONTROL_BUDGET, CONTROL_PERIOD, Host};
pub use qfabric_broker::Limits;
pub use words::{HostConfig, HostEvent, Input, Outcome, Output};

use host::HYSTERESIS;

/// Compiles the program in the guide.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/src/policies.md")]
    struct Policies;
}
