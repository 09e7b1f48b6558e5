//! A service of this process.

use std::sync::Arc;

use qfabric_types::Nanos;
use qfabric_types::api::ecalls::{ServiceId, ServiceInfo};
use qfabric_types::ecalls_wire::RaiseRequest;
use qfabric_types::event_json;

use super::connection::Inner;
use crate::error::ClientError;

/// A service that this process has registered. It ends when this value is dropped, or with the process.
#[derive(Debug)]
pub struct OwnService {
    pub(super) inner: Arc<Inner>,
    pub(super) info: ServiceInfo,
    pub(super) ended: bool,
}

impl OwnService {
    /// Number of the service.
    pub fn id(&self) -> ServiceId {
        self.info.id
    }

    /// The service as it was registered.
    pub fn info(&self) -> &ServiceInfo {
        &self.info
    }

    /// Raises an event for the subscriber `pid`, or for all (−1): one system call that does not block. The event is
    /// dropped if it cannot be delivered within `deadline` (zero: no deadline). `cpu` asks the CPU scheduler to
    /// favour the subscriber's server: under `ext`, if the contract sets `favour_events`; other mechanisms only count
    /// the request. Fails with [`ClientError::Value`] if `data` has the wrong size, and with [`ClientError::Crowded`]
    /// if the daemon's queue is full.
    pub fn raise_event(&self, pid: i32, data: &[u8], deadline: Nanos, cpu: bool) -> Result<(), ClientError> {
        let size = self.info.format.size as usize;
        if data.len() != size {
            let format = &self.info.format.name;
            let why = format!("the data has {} bytes, but struct {format} has {size}", data.len());
            return Err(ClientError::invalid(why, "raise the whole structure"));
        }
        let deadline_us = deadline.get().div_ceil(1_000);
        match self.inner.lease.raise(&RaiseRequest { service: self.info.id, pid, deadline_us, cpu, data })? {
            true => Ok(()),
            false => Err(ClientError::Crowded { service: self.info.name.clone() }),
        }
    }

    /// Like [`OwnService::raise_event`], with the event as a JSON object.
    pub fn raise_fields(&self, fields: &serde_json::Map<String, serde_json::Value>) -> Result<(), ClientError> {
        let format = &self.info.format;
        let wrong =
            |why| ClientError::invalid(why, format!("pass the fields of struct {} with their types", format.name));
        let data = event_json::encode(format, fields).map_err(wrong)?;
        self.raise_event(-1, &data, Nanos::ZERO, false)
    }

    /// Ends the service (the paper's `unregister_service`).
    pub fn unregister(mut self) -> Result<(), ClientError> {
        self.ended = true;
        self.inner.lease.own()?;
        self.inner.client.unregister_service(&self.info.name)
    }
}

impl Drop for OwnService {
    fn drop(&mut self) {
        // In a child of a fork the service belongs to the parent.
        if !self.ended && self.inner.lease.own().is_ok() {
            // If this call fails, the service ends with the lease.
            let _ = self.inner.client.unregister_service(&self.info.name);
        }
    }
}
