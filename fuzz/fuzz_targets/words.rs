//! Words of the command line and the interface.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::words(bytes));
