//! Rings of messages that an application scribbles in.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::message_ring(bytes));
