//! A test suite for every network under the nodes, and a simulated network.

pub mod conformance;
mod memory;
pub mod operations;
mod world;

pub use crate::wire::readable;
pub use memory::{Memory, Settings};
pub use world::{Delivered, EAGER, World};
