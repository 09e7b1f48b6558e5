//! The resource manager of one host: who is called when something changes, who gets how much, who else is asked.
//!
//! ```text
//!   readings, control events ──> Manager ──> controllers of interest ──> decisions ──> channels, filters, brokers
//!   applications come and go ──>    │ admission, division of each resource
//!   what cannot be met here  ──>    └ asked of other hosts: first, best of n, nearest; the rest is cancelled
//! ```
//! A [`Controller`] is what an engineer writes: a plain value with a list of interests. [`Member`] ties a manager to a
//! `qfabric_channel::Node`; the daemon and the simulator run the same one. Source: thesis §2.2, §4.3, Figures 7, 28.
#![doc = "Nothing here reads a clock, does I/O or knows how many hosts there are."]

mod asked;
mod controller;
mod core;
mod groups;
mod lending;
mod member;
pub mod policies;
mod readings;
mod requests;
mod shares;

pub use self::core::{Counts, Effect, Input, Manager, Output};
pub use controller::{Change, ChangeKind, Controller, Decision, Decisions, Filter, Interest, Recipient, Topic, View};
pub use groups::GroupController;
pub use lending::Lending;
pub use member::{Member, MemberOutput, quality_spec};
pub use readings::Readings;
pub use requests::{Ask, Outcome, Rule};
pub use shares::{Overcommitted, Wish};
