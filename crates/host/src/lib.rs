//! qfabric-host
