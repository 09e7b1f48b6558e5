//! Sequences of operations on the nodes of four hosts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::channel_operations(bytes));
