//! Joint contracts over several hosts on a simulated network: the coordinators, participants and books of the
//! daemon, with loss, delay, reordering, duplication, clocks that run at different rates, crashes, and links that an
//! administrator closes. The brokers behind the books only count.
//!
//! [`World`] checks the promises of the protocol after every event and panics with the seed if one does not hold:
//! * no more is promised than there is;
//! * a contract in force is committed on all its hosts that have not crashed, or lost a link, within the last
//!   hold;
//! * nothing is held for longer than a hold (and the delay of one message) after its contract ended;
//! * every contract is in force or refused within [`Timing::longest`] and its patience.
//!
//! [`compare`] runs the same requests under Banker's algorithm and under hold-and-wait.

mod banker;
mod compare;
mod host;
mod workload;
mod world;

pub use compare::{Comparison, Row, compare};
pub use qfabric_host::manager::contracts::Timing;
pub use workload::{Arrival, Workload};
pub use world::{Conditions, Crash, Report, World};
