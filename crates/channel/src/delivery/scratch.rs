//! Memory that is reused from event to event.

use std::sync::Arc;

use super::channel::Bound;
use super::link::Origin;
use crate::filter::{Changed, Copies};

#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// For each seat of the roster, or of this host's part of it.
    pub chosen: Vec<bool>,
    /// The seats that cannot take the event now.
    pub full: Vec<bool>,
    /// The only seat of this host that a copy is for.
    pub alone: Vec<bool>,
    pub attributes: Vec<u8>,
    /// The payload as filters have changed it.
    pub changed: Changed,
    /// The payloads that OUT-filters for single sinks have changed, by seat of the roster.
    pub copies_out: Copies,
    /// The payloads that IN-filters for single sinks have changed, by seat of this host's part of the roster.
    pub copies_in: Copies,
    pub sinks: Vec<u32>,
    /// A copy of `chosen` for this host's seats, made before the filters ran.
    pub meant: Vec<bool>,
    pub outcome: Outcomes,
}

/// Effects to apply after an event was given to all sinks.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// New values of filters' parameters.
    pub parameters: Vec<(Arc<Bound>, i64)>,
    /// Events that made room for others, and the sink.
    pub evicted: Vec<(Origin, u32)>,
}
