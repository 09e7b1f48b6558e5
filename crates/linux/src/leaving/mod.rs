//! Leaving SCHED_DEADLINE without losing bandwidth and without trapping the thread.
//!
//! The kernel keeps two things of a thread that left (measured on Linux 6.18, see docs/design/0007):
//! its *bandwidth*, for ever, if it was asleep past its 0-lag time, or never ran, or its bandwidth was changed while
//! it slept; and its *throttled mark*, if it fell asleep in an overrun and its timer was cancelled: reserved again
//! later, such a thread never runs. So a thread leaves only in states in which neither can happen; where that is not
//! certain it rests, and a thread that enters with an old mark is washed of it.
//!
//! | file | what |
//! |---|---|
//! | `account.rs` | what the kernel tells of a thread's server |
//! | `departure.rs` | the steps of one departure |
//! | `washing.rs` | finding and clearing a stale mark |

mod account;
mod departure;
mod washing;

pub(crate) use account::{Account, Reading};
pub(crate) use departure::{Departure, Step};
pub(crate) use washing::{Watch, enter};
