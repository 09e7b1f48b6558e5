//! A job ring into which its application writes random bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::ring(bytes));
