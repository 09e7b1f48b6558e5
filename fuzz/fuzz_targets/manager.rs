//! Messages of resource managers on other hosts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::manager(bytes));
