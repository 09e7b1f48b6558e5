//! A memory_up into which another process writes random bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::memory_up(bytes));
