//! What threads of one process need of each other: locks with an order, and panics that end no more than they must.

mod condvar;
mod edge;
mod lock;
mod panics;
pub mod rank;

pub use condvar::Condvar;
pub use lock::{Guard, Lock, assert_may_block, lock};
pub use panics::contain;
