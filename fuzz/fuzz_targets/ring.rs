//! A job ring that its application scribbles in.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::ring(bytes));
