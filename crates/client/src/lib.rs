//! qfabric-client
