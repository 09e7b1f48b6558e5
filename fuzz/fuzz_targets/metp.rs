//! Datagrams of METP from a hostile peer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::metp(bytes));
