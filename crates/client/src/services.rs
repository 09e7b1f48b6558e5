//! The calls to a daemon about services, handlers and subscriptions.

use std::collections::BTreeMap;
use std::time::Duration;

use qfabric_types::api::ecalls::{
    AttributeChange, CallAnswer, CallRequest, DeploymentAnswer, DeploymentRequest, EventData, EventRequest,
    HandlerInfo, HandlerRequest, LeaseId, RaiseOutcome, ServiceInfo, ServiceRequest, SubscriptionId, SubscriptionInfo,
    SubscriptionRequest,
};
use qfabric_types::event_json::{from_hex, to_hex};

use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// Path of the socket for ECalls connections.
    pub fn ecalls_socket(&self) -> std::path::PathBuf {
        self.socket().with_file_name("ecalls.sock")
    }

    /// All services; for a service that cannot be subscribed to, the reason.
    pub fn services(&self) -> Result<Vec<ServiceInfo>, ClientError> {
        self.get("/v1/services")
    }

    /// Announces a service under a lease; see [`crate::ecalls::Ecalls::register_service`].
    pub fn register_service(&self, request: &ServiceRequest) -> Result<ServiceInfo, ClientError> {
        self.call("POST", "/v1/services", Some(request))
    }

    /// Ends a service.
    pub fn unregister_service(&self, name: &str) -> Result<(), ClientError> {
        self.exchange("DELETE", &format!("/v1/services/{}", segment(name)?), None).map(drop)
    }

    /// Raises one event of a service of this user. To raise many events, register the service and use its connection.
    pub fn raise_event(&self, service: &str, event: &EventRequest) -> Result<RaiseOutcome, ClientError> {
        self.call("POST", &format!("/v1/services/{}/events", segment(service)?), Some(event))
    }

    /// Sends a request to the owner of a service and waits at most `patience` for the answer.
    pub fn call_service(&self, service: &str, data: &[u8], patience: Duration) -> Result<Vec<u8>, ClientError> {
        let request = CallRequest { data: EventData::Hex(to_hex(data)), timeout_ms: patience.as_millis() as u64 };
        let path = format!("/v1/services/{}/call", segment(service)?);
        let client = self.clone().with_patience(patience.saturating_add(Client::PATIENCE));
        let answer: CallAnswer = client.call("POST", &path, Some(&request))?;
        from_hex(&answer.data).map_err(|why| ClientError::Answer { call: format!("POST {path}"), why })
    }

    /// Gives a name to E-code. Without a lease the handler stays until it is removed.
    pub fn put_handler(&self, name: &str, code: &str, lease: Option<LeaseId>) -> Result<HandlerInfo, ClientError> {
        let request = HandlerRequest { lease, code: code.to_owned(), open: false };
        self.call("PUT", &format!("/v1/handlers/{}", segment(name)?), Some(&request))
    }

    /// The named handlers that this user may use.
    pub fn handlers(&self) -> Result<Vec<HandlerInfo>, ClientError> {
        self.get("/v1/handlers")
    }

    /// Removes a handler's name; subscriptions that use the handler keep it.
    pub fn remove_handler(&self, name: &str) -> Result<(), ClientError> {
        self.exchange("DELETE", &format!("/v1/handlers/{}", segment(name)?), None).map(drop)
    }

    /// Subscribes over HTTP. [`crate::ecalls::Ecalls::subscribe`] makes a subscription with a lease and shared
    /// memory.
    pub fn subscribe(&self, request: &SubscriptionRequest) -> Result<SubscriptionInfo, ClientError> {
        self.call("POST", "/v1/subscriptions", Some(request))
    }

    /// Subscribes on several hosts; each answers by itself. Events go to the channel of the subscription.
    pub fn deploy(&self, request: &DeploymentRequest) -> Result<Vec<DeploymentAnswer>, ClientError> {
        self.call("POST", "/v1/deployments", Some(request))
    }

    /// The subscriptions of this user; for root, all subscriptions.
    pub fn subscriptions(&self) -> Result<Vec<SubscriptionInfo>, ClientError> {
        self.get("/v1/subscriptions")
    }

    /// One subscription; fails with [`ClientError::Refused`] if the number is unknown.
    pub fn subscription(&self, id: SubscriptionId) -> Result<SubscriptionInfo, ClientError> {
        self.get(&format!("/v1/subscriptions/{id}"))
    }

    /// Changes attributes of a subscription over HTTP. With an ECalls connection a change is a plain store.
    pub fn set_attributes(
        &self,
        id: SubscriptionId,
        attributes: BTreeMap<String, i64>,
    ) -> Result<SubscriptionInfo, ClientError> {
        self.call("PATCH", &format!("/v1/subscriptions/{id}"), Some(&AttributeChange { attributes }))
    }

    /// Ends a subscription.
    pub fn unsubscribe(&self, id: SubscriptionId) -> Result<(), ClientError> {
        self.exchange("DELETE", &format!("/v1/subscriptions/{id}"), None).map(drop)
    }
}

/// Checks a name for use in a path: valid names need no escaping.
fn segment(name: &str) -> Result<&str, ClientError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match !name.is_empty() && name.chars().all(plain) {
        true => Ok(name),
        false => {
            Err(ClientError::invalid(format!("{name:?} is not a valid name"), "use letters, digits, '.', '_' and '-'"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_not_asked_for() {
        for bad in ["", "a/b", "a b", "é", "x?y"] {
            assert!(segment(bad).is_err(), "{bad:?}");
        }
        assert_eq!(segment("sched.deadline_miss").unwrap(), "sched.deadline_miss");
    }
}
