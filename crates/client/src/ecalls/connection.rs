//! State shared by an ECalls session and everything made with it: the client, the lease, and memory_down.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use qfabric_shm::SharedDown;
use qfabric_types::ecalls_wire::{DescriptorSet, FromClient};
use qfabric_types::memory::Moment;

use super::lease::Lease;
use crate::client::Client;
use crate::error::ClientError;
use crate::sync::lock;

#[derive(Debug)]
pub(super) struct Inner {
    pub client: Client,
    pub lease: Lease,
    /// Mapped at its first use.
    down: OnceLock<SharedDown>,
    /// Numbers of the attributes that the subscriptions of this connection have named.
    names: Mutex<BTreeMap<String, usize>>,
    /// Held while a value is deferred: the ring has one writer at a time.
    deferring: Mutex<()>,
}

impl Inner {
    pub(super) fn open(client: &Client) -> Result<Inner, ClientError> {
        let lease = Lease::open(&client.ecalls_socket(), client.patience())?;
        let (names, deferring) = (Mutex::default(), Mutex::default());
        Ok(Inner { client: client.clone(), lease, down: OnceLock::new(), names, deferring })
    }

    /// Assigns numbers to the attributes of a subscription, in this order.
    pub(super) fn learn<'a>(&self, names: impl Iterator<Item = &'a String>) {
        let mut known = lock(&self.names);
        for (number, name) in names.enumerate() {
            known.insert(name.clone(), number);
        }
    }

    /// Number of an attribute in memory_down.
    pub(super) fn number(&self, name: &str) -> Result<usize, ClientError> {
        let known = lock(&self.names);
        known.get(name).copied().ok_or_else(|| {
            let names: Vec<_> = known.keys().map(String::as_str).collect();
            let used = format!("use one of the subscriptions of this connection: {}", names.join(", "));
            ClientError::invalid(format!("there is no attribute {name:?}"), used)
        })
    }

    /// memory_down; fetched from the daemon at the first call.
    pub(super) fn down(&self) -> Result<&SharedDown, ClientError> {
        if let Some(down) = self.down.get() {
            return Ok(down);
        }
        let broken = |why: String| ClientError::Memory { what: "memory_down", why };
        let mut came = self.lease.take(&FromClient::TakeDown, None)?;
        let file = came
            .pick(DescriptorSet::DOWN)
            .ok_or_else(|| broken("the daemon did not send its descriptor".to_owned()))?;
        let down = SharedDown::map(&file).map_err(|error| broken(error.to_string()))?;
        Ok(self.down.get_or_init(|| down))
    }

    /// Queues a deferred value, for the handlers of one moment or of all.
    pub(super) fn defer(&self, value: i64, only: Option<Moment>) -> Result<(), ClientError> {
        let down = self.down()?;
        let _alone = lock(&self.deferring);
        let queued = match only {
            Some(moment) => down.defer_at(value, moment),
            None => down.defer(value),
        };
        queued.map_err(|full| ClientError::invalid(full.to_string(), "try again when the batch was processed"))
    }

    /// memory_down, if it was fetched before.
    pub(super) fn mapped(&self) -> Option<&SharedDown> {
        self.down.get()
    }
}
