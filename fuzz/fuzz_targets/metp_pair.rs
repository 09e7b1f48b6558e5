//! Two sessions of METP over a hostile network.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::metp_pair(bytes));
