//! What [`super::crew`] waits with. A model of it brings others of the same names.

pub(super) use std::sync::Condvar;

pub(super) use qfabric_sync::{Guard, Lock, rank};
