//! qfabric-linux
