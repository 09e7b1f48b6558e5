//! qfabric-ffi
