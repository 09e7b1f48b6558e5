//! What an application does with a connection for channels: groups, channels, policies, and waiting for events.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use qfabric_types::api::channel::{ChannelInfo, ChannelRequest, GroupRequest, LeaseId, Policy, PolicyInfo, QosRange};
use qfabric_types::channel::{ChannelId, InvalidName, Name};
use qfabric_types::channel_wire::{Decision, FromClient, Report};
use qfabric_types::monitor::MAX_NAME;

use super::connection::{Inner, name};
use super::handle::{Channel, Spec};
use super::inbox::Notice;
use crate::client::Client;
use crate::error::ClientError;

/// A connection for channels. Everything made with it ends with its last copy. Cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub struct Channels(pub(super) Arc<Inner>);

impl Channels {
    /// Connects to the daemon's `channels.sock`.
    pub fn connect(client: &Client) -> Result<Channels, ClientError> {
        Ok(Channels(Arc::new(Inner::open(client)?)))
    }

    /// The number of this connection.
    pub fn lease(&self) -> LeaseId {
        self.0.lease()
    }

    /// This host's name on the network.
    pub fn host(&self) -> &str {
        self.0.host()
    }

    /// Registers the application with a group (000 §2.2), the same group and application on all its hosts. `qos`: the
    /// least and the most that is of use of each metric.
    pub fn register(
        &self,
        application_id: &str,
        group_id: &str,
        qos: &[(&str, i64, i64)],
    ) -> Result<Registration, ClientError> {
        let range =
            |(metric, min, max): &(&str, i64, i64)| QosRange { metric: (*metric).to_owned(), min: *min, max: *max };
        self.register_as(GroupRequest {
            lease: self.0.own()?,
            application: name(application_id)?,
            group: name(group_id)?,
            parent: None,
            level: 1,
            qos: qos.iter().map(range).collect(),
        })
    }

    /// The same, with the group's place in the tree. The request's lease is this connection's.
    pub fn register_as(&self, mut request: GroupRequest) -> Result<Registration, ClientError> {
        request.lease = self.0.own()?;
        let registered = self.0.client.join_group(&request)?;
        Ok(Registration { inner: self.0.clone(), number: registered.number, channel: registered.channel })
    }

    /// Creates a channel.
    pub fn create(&self, channel: &str, spec: &Spec) -> Result<Channel, ClientError> {
        let request = ChannelRequest {
            lease: self.0.own()?,
            name: name(channel)?,
            formats: spec.formats.clone(),
            order: spec.order,
            pressure: spec.pressure,
            patience_ns: spec.patience,
        };
        let info = self.0.client.create_channel(&request)?;
        Ok(Channel::new(self.0.clone(), info))
    }

    /// Opens a channel that some host holds: `NAME`, or `quality:NAME`.
    pub fn open(&self, channel: &str) -> Result<Channel, ClientError> {
        let id: ChannelId = channel.parse().map_err(|error: InvalidName| ClientError::value(error.problem()))?;
        let info = self.0.client.open_channel(&id, self.0.own()?)?;
        Ok(Channel::new(self.0.clone(), info))
    }

    /// The channels of all hosts.
    pub fn list(&self) -> Result<Vec<ChannelInfo>, ClientError> {
        self.0.client.channels()
    }

    /// Policies that run on this host, and what they decided.
    pub fn policies(&self) -> Result<Vec<PolicyInfo>, ClientError> {
        self.0.client.policies()
    }

    /// Starts a policy on this host: it runs until it is stopped, also when this connection has ended.
    pub fn start_policy(&self, policy: &Policy) -> Result<PolicyInfo, ClientError> {
        self.0.client.start_policy(policy)
    }

    /// Stops it.
    pub fn stop_policy(&self, policy: &str) -> Result<(), ClientError> {
        self.0.client.stop_policy(&name(policy)?)
    }

    /// Calls the handlers of all waiting events, and returns the number of events. If no event waits, it waits for one,
    /// for at most `patience`. If a handler calls this, only the handlers of other sinks are called.
    pub fn poll(&self, patience: Duration) -> Result<usize, ClientError> {
        self.0.poll(patience)
    }

    /// Sets the handler that [`Channels::poll`] calls for each decision of a resource manager about a channel on which
    /// this process has a source or a sink. An encoder that reduces its output after a decision loses no events to
    /// pacing. With a handler, decisions are not reported as notices. When this returns, an earlier handler is no
    /// longer called.
    pub fn on_decided(&self, handler: impl FnMut(&Decision<'_>) + Send + 'static) {
        self.0.on_decided(Box::new(handler));
    }

    /// Readable when there is something to poll: for `select`, `poll`, `epoll` and event loops.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// The next thing the daemon has told without being asked; none: nothing.
    pub fn next_notice(&self) -> Result<Option<Notice>, ClientError> {
        self.0.next_notice()
    }

    /// Drops the notices that wait, except decisions. For programs that do not call [`Channels::next_notice`]: a notice
    /// that waits keeps [`Channels::fd`] readable.
    pub fn forget_notices(&self) -> Result<(), ClientError> {
        self.0.forget_notices()
    }
}

/// An application's membership of a group; dropping it leaves.
#[derive(Debug)]
pub struct Registration {
    inner: Arc<Inner>,
    number: u32,
    channel: String,
}

impl Registration {
    /// The group's Q-channel, for [`Channels::open`].
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// Tells this host's policies how the application is doing, and those of the hosts that feed the channel of the
    /// group's name: `app.show_need`, `app.position`, or any other number of its own. `attribute` begins with `app.`.
    /// On one channel all users of a host together report at most 224 values, in equal parts when there is no room. The
    /// daemon drops further ones, and counts and logs them.
    pub fn report(&self, attribute: &str, value: i64) -> Result<(), ClientError> {
        let fits = attribute.starts_with("app.") && attribute.len() <= MAX_NAME && attribute.parse::<Name>().is_ok();
        if !fits || attribute == "app.rate_milli" {
            let shown: String = attribute.chars().take(80).collect();
            let next = "use a name of at most 48 characters that begins with app.; the service counts app.rate_milli";
            return Err(ClientError::invalid(format!("{shown:?} is nothing that an application reports"), next));
        }
        self.inner.send(&FromClient::Report(Report { registration: self.number, attribute, value }))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // The daemon may be gone; then so is the registration.
        self.inner.leave("registrations", self.number);
    }
}
