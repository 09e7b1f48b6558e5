//! Texts that describe an emulated link.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::link_text(bytes));
