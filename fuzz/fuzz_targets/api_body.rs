//! A body that is understood and passes the check reads back as what it was, and its numbers are in bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qfabric_types::api::ApplicationRequest;
use qfabric_types::{Contract, PERIOD_RANGE};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<ApplicationRequest>(bytes) {
        check(&request.contract);
        // Whatever was understood can be said again.
        serde_json::to_string(&request).unwrap();
    }
    if let Ok(contract) = serde_json::from_slice::<Contract>(bytes) {
        check(&contract);
    }
});

fn check(contract: &Contract) {
    if contract.check().is_ok() {
        assert!(contract.period >= PERIOD_RANGE.0 && contract.period <= PERIOD_RANGE.1);
        assert!(contract.max_budget() <= contract.server_period && contract.periods_per_job() >= 1);
        let again: Contract = serde_json::from_str(&serde_json::to_string(contract).unwrap()).unwrap();
        assert_eq!(again.check(), Ok(()));
    }
}
