//! Bodies of the local interface.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::api_body(bytes));
