//! Messages between the hosts of joint contracts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::contract_message(bytes));
