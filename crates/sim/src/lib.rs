//! qfabric-sim

pub mod control_loop;
