//! The header of a stream of the engine with streams.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::stream_header(bytes));
