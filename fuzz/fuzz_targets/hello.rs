//! The first message of a connection of METP.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::hello(bytes));
