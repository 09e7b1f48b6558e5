//! Memory that events use one after the other.

use std::sync::Arc;

use qfabric_types::channel::Name;

use super::channel::Bound;
use crate::filter::{Changed, Copies};

/// Memory that events use one after the other.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// For each seat of the roster, or of this host's part of it.
    pub chosen: Vec<bool>,
    /// And those that cannot take the event now.
    pub full: Vec<bool>,
    /// The only seat of this host that a copy is for.
    pub alone: Vec<bool>,
    pub attributes: Vec<u8>,
    /// The payload as filters have changed it.
    pub changed: Changed,
    /// What OUT-filters of single sinks have changed, by seat of the roster.
    pub copies_out: Copies,
    /// What IN-filters of single sinks have changed, by seat of this host's part of the roster.
    pub copies_in: Copies,
    pub frame: Vec<u8>,
    pub sinks: Vec<u32>,
    /// A copy of `chosen` for this host's seats, from before filters.
    pub meant: Vec<bool>,
    pub outcome: Outcomes,
}

/// What is to be done after an event was given to all sinks.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// What events say to filters' parameters.
    pub parameters: Vec<(Arc<Bound>, i64)>,
    /// Events that made room for others: their host, their source, and the sink.
    pub evicted: Vec<(Arc<Name>, u32, u32)>,
}
