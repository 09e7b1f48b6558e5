//! What [`super::crew`] and [`super::hub`] wait with. Models of them bring others of the same names.

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(super) use qfabric_sync::{Condvar, Guard, Lock, lock, rank};

pub(super) use super::sources::{Happened, Sources};

/// Events delivered in one turn of the dispatcher, before others are looked at.
pub(super) const DELIVERIES_PER_TURN: usize = 64;
