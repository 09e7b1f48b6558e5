//! Synchronisation of the threads of one process: locks with ranks and priority inheritance, and containment of
//! panics.

mod condvar;
mod edge;
mod lock;
mod panics;
pub mod rank;

pub use condvar::Condvar;
pub use lock::{Guard, Lock, assert_may_block, lock};
pub use panics::contain;
