//! What every network under the nodes is tested with, and a made-up one.

pub mod conformance;
mod memory;
pub mod operations;
mod world;

pub use crate::wire::readable;
pub use memory::{Memory, Settings};
pub use world::{Delivered, EAGER, World};
