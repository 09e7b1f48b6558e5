//! The resource manager of one host: calls controllers, admits applications, divides resources, asks other hosts.
//!
//! ```text
//!   readings, control events ──> Manager ──> controllers of interest ──> decisions ──> channels, filters, brokers
//!   applications come and go ──>    │ admission, division of each resource
//!   requests beyond this host ──>   └ sent to other hosts: first, best of n, nearest; the other offers are cancelled
//!   contracts over several hosts ──> [`contracts`]: all hosts or none
//! ```
//! A [`Controller`] is the part that an engineer writes: a plain value with a list of interests. [`Member`]
//! connects a manager to a `qfabric_channel::Node`; the daemon and the simulator run the same code. Source: thesis
//! §2.2, §4.3, Figures 7, 28.
#![doc = "The code reads no clock, does no I/O and does not depend on the number of hosts."]

mod asked;
pub mod contracts;
mod controller;
mod core;
pub mod far;
mod groups;
mod lending;
mod member;
pub mod policies;
mod readings;
mod requests;
mod shares;

pub use self::core::{Counts, Effect, Input, Manager, Output};
pub use controller::{
    Change, ChangeKind, Controller, Decision, Decisions, Filter, Interest, Reasons, Recipient, Topic, View,
};
pub use groups::GroupController;
pub use lending::Lending;
pub use member::{Member, MemberOutput, quality_spec};
pub use readings::Readings;
pub use requests::{Ask, Outcome, Rule};
pub use shares::{Overcommitted, ResourceRequest};
