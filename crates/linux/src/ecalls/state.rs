//! Layout of a handler's state in the kernel: one or two entries per CPU, or a single entry if events are handled one at
//! a time.
//!
//! ```text
//! 0 lock │ 8 passed │ 16 blocked │ 24 faults │ 32 last fault │ 40 dropped memory │ 48 dropped ring
//! 56 contended │ 64 service's own word │ 72 spins │ 80 time │ 88 deadline │ 96 run time │ 104 number of taken values
//! 112 sent signals
//! 128 frames and statics
//! ```
//! The owner maps the state and reads the counters without stopping the handlers. Offsets in bytes from register r9.

/// 1 while an event is handled.
pub(super) const LOCK: i16 = 0;
/// Counters (here to [`CONTENDED`], without [`LAST_FAULT`]), 64 bits each.
pub(super) const PASSED: i16 = 8;
pub(super) const BLOCKED: i16 = 16;
pub(super) const FAULTS: i16 = 24;
/// Code of the last fault.
pub(super) const LAST_FAULT: i16 = 32;
pub(super) const DROPPED_MEMORY: i16 = 40;
pub(super) const DROPPED_RING: i16 = 48;
pub(super) const CONTENDED: i16 = 56;
/// A word for the service's own code.
pub(super) const SERVICE: i16 = 64;
/// Largest number of attempts to take a lock.
pub(super) const SPINS: i16 = 72;
/// Time of the event.
pub(super) const TIME: i16 = 80;
/// Time until which the event is useful; 0: without limit.
pub(super) const DEADLINE: i16 = 88;
/// Run time of measured handlers, in ns.
pub(super) const RUN_NS: i16 = 96;
/// Number of values of a batch while the batch is made.
pub(super) const TAKEN: i16 = 104;
/// Number of signals that the kernel sent.
pub(super) const SIGNALS: i16 = 112;
/// Bytes before the frames.
pub(super) const HEADER: u32 = 128;
