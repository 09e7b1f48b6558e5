//! Messages of `channels.sock` and `ecalls.sock`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::local_message(bytes));
