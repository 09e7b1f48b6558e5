//! Takes threads out of SCHED_DEADLINE without losing bandwidth and without leaving a thread that never runs again.
//!
//! The kernel can keep two things of a thread that left (measured on Linux 6.18, see docs/design/0007):
//!
//! - its *bandwidth*, for ever, if the thread slept past its 0-lag time, never ran, or had its bandwidth changed while
//!   it slept;
//! - its *throttled mark*, if the thread fell asleep in an overrun and its timer was cancelled. If such a thread is
//!   reserved again, it never runs.
//!
//! A thread therefore leaves only in a state in which neither can happen. If the state is not certain, the thread rests
//! before it may be reserved again. If a thread enters with a stale mark, the mark is cleared.
//!
//! | file | contents |
//! |---|---|
//! | `account.rs` | the state of a thread's server, read from the kernel |
//! | `departure.rs` | the steps of one departure |
//! | `stale_mark.rs` | finding and clearing a stale throttled mark |

mod account;
mod departure;
mod stale_mark;

pub(crate) use account::{Account, Reading};
pub(crate) use departure::{Departure, Step};
pub(crate) use stale_mark::{Watch, enter};
