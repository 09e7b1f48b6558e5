//! Events of the conference, one after another.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::conference(bytes));
