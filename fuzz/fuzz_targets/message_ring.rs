//! Message rings into which an application writes random bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::message_ring(bytes));
