//! Frames from other hosts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::channel_frame(bytes));
