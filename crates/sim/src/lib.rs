//! qfabric-sim

pub mod control_loop;
pub mod streams;
pub mod video;
pub mod world;
