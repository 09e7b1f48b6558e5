//! qfabric-daemon
