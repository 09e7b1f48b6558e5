//! qfabric-sim

pub mod control_loop;
pub mod video;
pub mod world;
