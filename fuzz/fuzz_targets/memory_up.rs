//! A memory_up that somebody scribbles in.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::memory_up(bytes));
