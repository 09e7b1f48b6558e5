//! qfabric-demo
