//! qfabric-control
