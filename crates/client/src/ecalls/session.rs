//! An ECalls session: requests under one lease, and attributes.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use qfabric_shm::SharedDown;
use qfabric_types::api::ecalls::{HandlerInfo, LeaseId, ServiceInfo, ServiceRequest};
use qfabric_types::ecalls_wire::FromClient;
use qfabric_types::memory::Moment;

use super::connection::Inner;
use super::lease::Notice;
use super::service::OwnService;
use super::sockets::Sockets;
use super::subscribe::SubscriptionBuilder;
use super::subscription::Subscription;
use crate::client::Client;
use crate::error::ClientError;

/// A connection for ECalls. Everything made with it ends when its last clone is dropped. Cheap to clone; any thread
/// may use it.
#[derive(Clone, Debug)]
pub struct Ecalls(Arc<Inner>);

impl Ecalls {
    /// Connects to the daemon's `ecalls.sock`.
    pub fn connect(client: &Client) -> Result<Ecalls, ClientError> {
        Ok(Ecalls(Arc::new(Inner::open(client)?)))
    }

    /// Number of this connection, under which the daemon lists its requests.
    pub fn lease(&self) -> LeaseId {
        self.0.lease.id()
    }

    /// All services; for a service that cannot be subscribed to, the reason.
    pub fn services(&self) -> Result<Vec<ServiceInfo>, ClientError> {
        self.0.client.services()
    }

    /// Announces a service of this process. `format` has C structure declarations; the last one is the event's. If
    /// `open` is true, other users may subscribe.
    pub fn register_service(
        &self,
        name: &str,
        about: &str,
        format: &str,
        open: bool,
    ) -> Result<OwnService, ClientError> {
        let [name, about, format] = [name, about, format].map(str::to_owned);
        let lease = self.0.lease.own()?;
        let info = self.0.client.register_service(&ServiceRequest { lease, name, about, format, open })?;
        Ok(OwnService { inner: self.0.clone(), info, ended: false })
    }

    /// Gives a name to E-code (`k_handler`) while this connection lasts.
    pub fn name_handler(&self, name: &str, code: &str) -> Result<HandlerInfo, ClientError> {
        self.0.client.put_handler(name, code, Some(self.0.lease.own()?))
    }

    /// Subscribes. On an error no part of the subscription stays installed.
    pub fn subscribe(&self, wanted: &SubscriptionBuilder) -> Result<Subscription, ClientError> {
        let mut request = wanted.request().clone();
        request.lease = Some(self.0.lease.own()?);
        let info = self.0.client.subscribe(&request)?;
        self.0.learn(info.attributes.iter().map(|(name, _)| name));
        Subscription::open(self.0.clone(), info)
    }

    /// An attribute that a subscription of this connection uses; fails with [`ClientError::Value`] for other names.
    pub fn attribute(&self, name: &str) -> Result<Attribute, ClientError> {
        let number = self.0.number(name)?;
        self.0.down()?;
        Ok(Attribute { inner: self.0.clone(), number })
    }

    /// A deferred user-ECall: queues the value until the subscription to `app.deferred` processes its batch. No
    /// system call, unless several threads defer at the same moment.
    pub fn defer(&self, value: i64) -> Result<(), ClientError> {
        self.0.lease.own()?;
        self.0.defer(value, None)
    }

    /// Like [`Ecalls::defer`], for the subscriptions to `app.deferred` whose option `when` is this moment. Those of
    /// other moments pass over the value; without one of this moment, no handler gets it.
    ///
    /// # Errors
    /// The connection has ended or belongs to another process; or as many values as the ring holds wait already.
    pub fn defer_at(&self, value: i64, moment: Moment) -> Result<(), ClientError> {
        self.0.lease.own()?;
        self.0.defer(value, Some(moment))
    }

    /// Sends `data` to the owner of a service and waits at most `patience` for the answer.
    pub fn call(&self, service: &str, data: &[u8], patience: Duration) -> Result<Vec<u8>, ClientError> {
        self.0.client.call_service(service, data, patience)
    }

    /// The next notice: a call of a service of this process, a removed handler, or an ended subscription. None if
    /// none arrives within `patience`.
    pub fn next_notice(&self, patience: Duration) -> Result<Option<Notice>, ClientError> {
        self.0.lease.next_notice(patience)
    }

    /// Answers a call; `call` is the number in [`Notice::Call`].
    pub fn reply(&self, call: u64, data: &[u8]) -> Result<(), ClientError> {
        self.0.lease.send(&FromClient::Reply { call, data }, None)
    }

    /// Descriptor that is readable while a notice waits.
    pub fn notice_fd(&self) -> BorrowedFd<'_> {
        self.0.lease.fd()
    }

    /// The I/O event delivery module of this connection.
    pub fn sockets(&self) -> Result<Sockets, ClientError> {
        Sockets::open(self.0.clone())
    }
}

/// A number in memory_down that handlers read and the application writes without a system call (a fast user-ECall).
#[derive(Clone, Debug)]
pub struct Attribute {
    inner: Arc<Inner>,
    number: usize,
}

impl Attribute {
    fn down(&self) -> &SharedDown {
        self.inner.mapped().expect("memory_down is mapped before an attribute exists")
    }

    /// Number of the attribute in `memory_down`.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The present value.
    pub fn get(&self) -> i64 {
        self.down().attribute(self.number)
    }

    /// Sets the value; the next handler call sees it.
    pub fn set(&self, value: i64) {
        self.down().set_attribute(self.number, value);
    }

    /// Adds atomically; returns the new value.
    pub fn add(&self, by: i64) -> i64 {
        self.down().add_attribute(self.number, by).unwrap_or_default()
    }
}
