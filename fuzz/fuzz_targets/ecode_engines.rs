//! E-code in the interpreter and as machine code.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qfabric_hostile::ecode_engines(bytes));
