//! A configuration that is accepted is in bounds; a refused one says why.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qfabric_daemon::Config;

fuzz_target!(|text: &str| {
    match Config::parse(text, "fuzz.toml".as_ref()) {
        Ok(config) => assert!(config.control_reservation().is_ok() && config.api.max_connections > 0),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
