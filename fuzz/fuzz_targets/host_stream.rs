//! Bytes from another host over plain sockets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::host_stream(bytes));
