//! Properties of the bodies of the local HTTP interface.

use qfabric_types::api::channel::{
    AttributeChanges, BindingRequest, ChannelRequest, FilterRemoval, FilterRequest, GroupRequest, Lease,
    MonitorRequest, ParameterRequest, Policy, SinkRequest, SourceRequest,
};
use qfabric_types::api::contracts::{
    ConsentAnswer, ConsentRequest, JointContract, JointRefusal, JointRequest, UpgradeAnswer,
};
use qfabric_types::api::ecalls::{
    AttributeChange, CallRequest, EventRequest, HandlerRequest, ServiceRequest, SubscriptionRequest,
};
use qfabric_types::api::memory::{MemoryAnswer, MemoryRequest};
use qfabric_types::api::net::{AttachRequest, LinkRequest, StreamChange, StreamSpec};
use qfabric_types::api::{ApplicationRequest, HostLimits, LimitsPatch, Problem};
use qfabric_types::{Contract, PERIOD_RANGE};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::contracts::assert_request_is_carried;

/// Each body that parses can be written, and parsing the written text gives the same value. A contract that passes
/// its check is within its bounds; a request for a joint contract can be sent to its hosts.
pub fn api_body(bytes: &[u8]) {
    if let Some(request) = parse_and_round_trip::<ApplicationRequest>(bytes) {
        assert_in_bounds(&request.contract);
    }
    if let Some(contract) = parse_and_round_trip::<Contract>(bytes) {
        assert_in_bounds(&contract);
    }
    if let Some(request) = parse_and_round_trip::<JointRequest>(bytes) {
        assert_request_is_carried(&request);
    }
    parse_and_round_trip::<Problem>(bytes);
    limits(bytes);
    let memory: [fn(&[u8]); 3] = [round_trip::<MemoryRequest>, round_trip::<MemoryAnswer>, round_trip::<HostLimits>];
    let others: [fn(&[u8]); 15] = [
        round_trip::<JointContract>,
        round_trip::<JointRefusal>,
        round_trip::<ConsentRequest>,
        round_trip::<ConsentAnswer>,
        round_trip::<UpgradeAnswer>,
        round_trip::<ServiceRequest>,
        round_trip::<EventRequest>,
        round_trip::<CallRequest>,
        round_trip::<HandlerRequest>,
        round_trip::<SubscriptionRequest>,
        round_trip::<AttributeChange>,
        round_trip::<AttachRequest>,
        round_trip::<LinkRequest>,
        round_trip::<StreamSpec>,
        round_trip::<StreamChange>,
    ];
    CHANNELS.iter().chain(&memory).chain(&others).for_each(|round_trip| round_trip(bytes));
}

/// Bodies about channels.
const CHANNELS: [fn(&[u8]); 12] = [
    round_trip::<ChannelRequest>,
    round_trip::<Lease>,
    round_trip::<SourceRequest>,
    round_trip::<SinkRequest>,
    round_trip::<AttributeChanges>,
    round_trip::<GroupRequest>,
    round_trip::<FilterRequest>,
    round_trip::<ParameterRequest>,
    round_trip::<FilterRemoval>,
    round_trip::<BindingRequest>,
    round_trip::<MonitorRequest>,
    round_trip::<Policy>,
];

/// A change of limits that is accepted gives limits in range.
fn limits(bytes: &[u8]) {
    let Some(patch) = parse_and_round_trip::<LimitsPatch>(bytes) else { return };
    if let Ok(limits) = patch.apply(&HostLimits::default()) {
        limits.check().expect("applied limits are in range");
    }
}

fn round_trip<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    parse_and_round_trip::<T>(bytes);
}

fn parse_and_round_trip<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let written = serde_json::to_string(&value).expect("a value can be written");
    let back: T = serde_json::from_str(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(serde_json::to_string(&back).expect("a value can be written"), written);
    Some(value)
}

fn assert_in_bounds(contract: &Contract) {
    if contract.check().is_ok() {
        assert!(contract.period >= PERIOD_RANGE.0 && contract.period <= PERIOD_RANGE.1);
        assert!(contract.max_budget() <= contract.server_period && contract.periods_per_job() >= 1);
    }
}
