//! Values in the text form of the command line and the API.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::words(bytes));
