//! qfabric-broker
