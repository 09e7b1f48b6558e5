//! The session: what is asked under one lease, and attributes.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use qfabric_shm::SharedDown;
use qfabric_types::api::ecalls::{HandlerInfo, LeaseId, ServiceInfo, ServiceRequest};
use qfabric_types::ecalls_wire::FromClient;

use super::connection::Inner;
use super::lease::Notice;
use super::service::OwnService;
use super::sockets::Sockets;
use super::subscribe::Subscribe;
use super::subscription::Subscription;
use crate::client::Client;
use crate::error::ClientError;

/// A connection for ECalls. Everything made with it ends with its last copy. Cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub struct Ecalls(Arc<Inner>);

impl Ecalls {
    /// Connects to the daemon's `ecalls.sock`.
    pub fn connect(client: &Client) -> Result<Ecalls, ClientError> {
        Ok(Ecalls(Arc::new(Inner::open(client)?)))
    }

    /// The number of this connection, under which the daemon lists what it asked for.
    pub fn lease(&self) -> LeaseId {
        self.0.lease.id()
    }

    /// All services one can subscribe to, or the reason why not.
    pub fn services(&self) -> Result<Vec<ServiceInfo>, ClientError> {
        self.0.client.services()
    }

    /// Announces a service of our own. `format`: C structure declarations, the last one is the event's; `open`:
    /// other users may subscribe.
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

    /// Gives E-code a name (`k_handler`), for as long as this connection lasts.
    pub fn name_handler(&self, name: &str, code: &str) -> Result<HandlerInfo, ClientError> {
        self.0.client.put_handler(name, code, Some(self.0.lease.own()?))
    }

    /// Subscribes. On an error nothing is left installed.
    pub fn subscribe(&self, wanted: &Subscribe) -> Result<Subscription, ClientError> {
        let mut request = wanted.request().clone();
        request.lease = Some(self.0.lease.own()?);
        let info = self.0.client.subscribe(&request)?;
        self.0.learn(info.attributes.iter().map(|(name, _)| name));
        Subscription::open(self.0.clone(), info)
    }

    /// An attribute that some subscription of this connection uses.
    pub fn attribute(&self, name: &str) -> Result<Attribute, ClientError> {
        let number = self.0.number(name)?;
        self.0.down()?;
        Ok(Attribute { inner: self.0.clone(), number })
    }

    /// A deferred user-ECall: the value waits for the moment that a subscription to `app.deferred` has chosen, and
    /// is handled there together with others. No system call.
    pub fn defer(&self, value: i64) -> Result<(), ClientError> {
        self.0.lease.own()?;
        self.0.down()?.defer(value).map_err(|full| ClientError::Value(full.to_string()))
    }

    /// Asks the owner of a service and waits for its answer; at most `patience`. `data`: what it expects.
    pub fn call(&self, service: &str, data: &[u8], patience: Duration) -> Result<Vec<u8>, ClientError> {
        self.0.client.call_service(service, data, patience)
    }

    /// What the daemon has to tell: calls of our services, handlers taken out, subscriptions that ended. None
    /// within `patience`.
    pub fn next_notice(&self, patience: Duration) -> Result<Option<Notice>, ClientError> {
        self.0.lease.next_notice(patience)
    }

    /// Answers a call.
    pub fn reply(&self, call: u64, data: &[u8]) -> Result<(), ClientError> {
        self.0.lease.send(&FromClient::Reply { call, data }, None)
    }

    /// Readable when there is a notice.
    pub fn notice_fd(&self) -> BorrowedFd<'_> {
        self.0.lease.fd()
    }

    /// The I/O module of this connection.
    pub fn sockets(&self) -> Result<Sockets, ClientError> {
        Sockets::open(self.0.clone())
    }
}

/// A word that handlers read, and that the application writes without a system call (a fast user-ECall).
#[derive(Clone, Debug)]
pub struct Attribute {
    inner: Arc<Inner>,
    number: usize,
}

impl Attribute {
    fn down(&self) -> &SharedDown {
        self.inner.mapped().expect("mapped before the attribute was handed out")
    }

    /// Its place in `memory_down`.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Its value.
    pub fn get(&self) -> i64 {
        self.down().attribute(self.number)
    }

    /// Handlers see the value from now on.
    pub fn set(&self, value: i64) {
        self.down().set_attribute(self.number, value);
    }

    /// Adds in one step; the new value.
    pub fn add(&self, by: i64) -> i64 {
        self.down().add_attribute(self.number, by).unwrap_or_default()
    }
}
