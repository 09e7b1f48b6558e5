//! What a handler keeps in the kernel: one entry per CPU, or one for all where events are handled one at a time.
//!
//! ```text
//! 0 lock │ 8 passed │ 16 blocked │ 24 faults │ 32 last fault │ 40 dropped memory │ 48 dropped ring
//! 56 contended │ 64 service's own word │ 72 spins left │ 80 time │ 88 deadline │ 128 frames and statics
//! ```
//! Mapped by the owner, who reads the counters without stopping anything. Offsets in bytes from register r9.

/// 1 while an event is handled.
pub(super) const LOCK: i16 = 0;
/// Counters, 64 bits each.
pub(super) const PASSED: i16 = 8;
/// See [`PASSED`].
pub(super) const BLOCKED: i16 = 16;
/// See [`PASSED`].
pub(super) const FAULTS: i16 = 24;
/// Code of the last fault.
pub(super) const LAST_FAULT: i16 = 32;
/// See [`PASSED`].
pub(super) const DROPPED_MEMORY: i16 = 40;
/// See [`PASSED`].
pub(super) const DROPPED_RING: i16 = 48;
/// See [`PASSED`].
pub(super) const CONTENDED: i16 = 56;
/// What the service itself keeps.
pub(super) const SERVICE: i16 = 64;
/// Turns left while waiting for a lock.
pub(super) const SPINS: i16 = 72;
/// When the event happened.
pub(super) const TIME: i16 = 80;
/// Until when it is of use; 0: always.
pub(super) const DEADLINE: i16 = 88;
/// Bytes before the frames.
pub(super) const HEADER: u32 = 128;
