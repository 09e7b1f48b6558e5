//! Formats as text and as JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::format(bytes));
