//! What a session and everything made with it share: the client, the lease, and the memory that goes down.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use qfabric_shm::SharedDown;
use qfabric_types::ecalls_wire::{FromClient, Given};

use super::lease::Lease;
use crate::client::Client;
use crate::error::ClientError;

#[derive(Debug)]
pub(super) struct Inner {
    pub client: Client,
    pub lease: Lease,
    /// Mapped when it is first needed.
    down: OnceLock<SharedDown>,
    /// Numbers of the attributes that subscriptions named so far.
    names: Mutex<BTreeMap<String, usize>>,
}

impl Inner {
    pub fn open(client: &Client) -> Result<Inner, ClientError> {
        let lease = Lease::open(&client.ecalls_socket(), client.patience())?;
        Ok(Inner { client: client.clone(), lease, down: OnceLock::new(), names: Mutex::default() })
    }

    /// A subscription uses these attributes, in this order.
    pub fn learn<'a>(&self, names: impl Iterator<Item = &'a String>) {
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, name) in names.enumerate() {
            known.insert(name.clone(), number);
        }
    }

    /// The place of an attribute in the memory that goes down.
    pub fn number(&self, name: &str) -> Result<usize, ClientError> {
        let known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name).copied().ok_or_else(|| {
            let names: Vec<_> = known.keys().map(String::as_str).collect();
            let why = format!("no attribute {name:?}; the subscriptions of this connection use: {}", names.join(", "));
            ClientError::Value(why)
        })
    }

    /// The memory that goes down, fetched from the daemon the first time.
    pub fn down(&self) -> Result<&SharedDown, ClientError> {
        if let Some(down) = self.down.get() {
            return Ok(down);
        }
        let broken = |why: String| ClientError::Memory { what: "memory_down", why };
        let mut came = self.lease.take(&FromClient::TakeDown, None)?;
        let file = came.pick(Given::DOWN).ok_or_else(|| broken("the daemon did not hand it out".to_owned()))?;
        let down = SharedDown::map(&file).map_err(|error| broken(error.to_string()))?;
        Ok(self.down.get_or_init(|| down))
    }

    /// The same, where it was fetched before.
    pub fn mapped(&self) -> Option<&SharedDown> {
        self.down.get()
    }
}
