//! The synchronisation primitives of [`super::crew`] and [`super::hub`]. The models in `tests/shuttle` replace them.

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(super) use qfabric_sync::{Condvar, Guard, Lock, lock, rank};

pub(super) use super::sources::{ReadySources, Sources};

/// Events that the dispatcher delivers in one turn before it checks other sources.
pub(super) const DELIVERIES_PER_TURN: usize = 64;
