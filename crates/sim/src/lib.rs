//! qfabric-sim
