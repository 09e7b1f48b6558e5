//! Datagrams of a delay measurement, one after another.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::answer(bytes));
