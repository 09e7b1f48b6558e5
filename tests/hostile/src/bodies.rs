//! Bodies of the local interface.

use qfabric_types::api::channel::{
    AttributeChanges, BindingRequest, ChannelRequest, FilterRemoval, FilterRequest, GroupRequest, Lease,
    MonitorRequest, ParameterRequest, Policy, SinkRequest, SourceRequest,
};
use qfabric_types::api::ecalls::{
    AttributeChange, CallRequest, EventRequest, HandlerRequest, ServiceRequest, SubscriptionRequest,
};
use qfabric_types::api::net::{AttachRequest, StreamChange, StreamSpec};
use qfabric_types::api::{ApplicationRequest, Problem};
use qfabric_types::{Contract, PERIOD_RANGE};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Whatever is understood can be said again and is understood again; a contract that passes its check is in bounds.
pub fn api_body(bytes: &[u8]) {
    if let Some(request) = again::<ApplicationRequest>(bytes) {
        bounded(&request.contract);
    }
    if let Some(contract) = again::<Contract>(bytes) {
        bounded(&contract);
    }
    again::<Problem>(bytes);
    let channels: [fn(&[u8]); 12] = [
        seen::<ChannelRequest>,
        seen::<Lease>,
        seen::<SourceRequest>,
        seen::<SinkRequest>,
        seen::<AttributeChanges>,
        seen::<GroupRequest>,
        seen::<FilterRequest>,
        seen::<ParameterRequest>,
        seen::<FilterRemoval>,
        seen::<BindingRequest>,
        seen::<MonitorRequest>,
        seen::<Policy>,
    ];
    let others: [fn(&[u8]); 9] = [
        seen::<ServiceRequest>,
        seen::<EventRequest>,
        seen::<CallRequest>,
        seen::<HandlerRequest>,
        seen::<SubscriptionRequest>,
        seen::<AttributeChange>,
        seen::<AttachRequest>,
        seen::<StreamSpec>,
        seen::<StreamChange>,
    ];
    channels.iter().chain(&others).for_each(|seen| seen(bytes));
}

fn seen<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    again::<T>(bytes);
}

fn again<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let said = serde_json::to_string(&value).expect("it can be written");
    let back: T = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{said}: {error}"));
    assert_eq!(serde_json::to_string(&back).expect("it can be written"), said);
    Some(value)
}

fn bounded(contract: &Contract) {
    if contract.check().is_ok() {
        assert!(contract.period >= PERIOD_RANGE.0 && contract.period <= PERIOD_RANGE.1);
        assert!(contract.max_budget() <= contract.server_period && contract.periods_per_job() >= 1);
    }
}
