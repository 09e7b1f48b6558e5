//! The control thread. No other thread uses the host, the mechanism, the rings or the observer.
//!
//! The thread has its own reservation, so that the applications that it schedules cannot starve it. It waits only
//! for its own event sources.

mod aims;
mod apps;
mod births;
mod command;
mod core;
mod counters;
mod decided;
mod engine;
mod flood;
mod history;
mod joins;
mod joint;
mod loans;
mod logbook;
mod mechanism;
mod memory;
mod misses;
mod notes;
mod observing;
mod own;
mod pending_leaves;
mod rings;
mod room;
mod sources;
mod thread;

#[cfg(test)]
pub(crate) use command::requests;
pub(crate) use command::{Adjust, Adjustment, AdjustmentTarget, Command, Monitored, NewRing, Report, Requests};
pub(crate) use counters::{Counters, HANDLING_BUCKETS_NS};
pub(crate) use decided::Decision;
pub(crate) use engine::Bounds;
pub(crate) use joint::{ShareHold, ShareShortage};
pub(crate) use loans::{ControlWord, Grant, Keep, Teller};
pub(crate) use logbook::Logbook;
pub(crate) use mechanism::best_effort_is_possible;
pub(crate) use notes::Note;
pub(crate) use rings::RingCounters;
pub(crate) use sources::{wake, wake_descriptor};
pub(crate) use thread::{Control, StartError, start};
