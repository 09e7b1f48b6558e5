//! The calls to a daemon about channels, groups, hosts and monitors.

use qfabric_types::api::channel::{
    AttributeChanges, BindingRequest, ChannelInfo, ChannelRequest, Direction, Explanation, FilterRemoval,
    FilterRequest, FilterScope, GroupInfo, GroupRequest, HostInfo, Installed, Joined, Lease, LeaseId, MonitorInfo,
    MonitorRequest, ParameterRequest, Policy, PolicyInfo, Registered, ReloadOutcome, SinkRequest, SourceRequest,
};
use qfabric_types::channel::{ChannelId, Name};

use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// The socket that channels' connections go to.
    pub fn channels_socket(&self) -> std::path::PathBuf {
        self.socket().with_file_name("channels.sock")
    }

    /// The channels of all hosts.
    pub fn channels(&self) -> Result<Vec<ChannelInfo>, ClientError> {
        self.get("/v1/channels")
    }

    /// One of them.
    pub fn channel(&self, channel: &ChannelId) -> Result<ChannelInfo, ClientError> {
        self.get(&path(channel))
    }

    /// Groups with their members on all hosts.
    pub fn groups(&self) -> Result<Vec<GroupInfo>, ClientError> {
        self.get("/v1/groups")
    }

    /// Hosts that take part.
    pub fn hosts(&self) -> Result<Vec<HostInfo>, ClientError> {
        self.get("/v1/hosts")
    }

    /// The daemon reads its access list and its certificate again: what they say holds from now on. For root.
    pub fn reload_access(&self) -> Result<ReloadOutcome, ClientError> {
        self.call::<(), _>("POST", "/v1/access/reload", None)
    }

    /// What is monitored on this host, and what could be.
    pub fn monitors(&self) -> Result<Vec<MonitorInfo>, ClientError> {
        self.get("/v1/monitors")
    }

    /// Changes how an attribute is monitored.
    pub fn set_monitor(&self, attribute: &str, request: &MonitorRequest) -> Result<MonitorInfo, ClientError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        match !attribute.is_empty() && attribute.chars().all(fits) {
            true => self.call("PUT", &format!("/v1/monitors/{attribute}"), Some(request)),
            false => Err(ClientError::invalid(format!("{attribute:?} is no attribute"), "see `qfabric monitor ls`")),
        }
    }

    /// Policies that run on this host, and what they decided.
    pub fn policies(&self) -> Result<Vec<PolicyInfo>, ClientError> {
        self.get("/v1/policies")
    }

    /// Starts a policy on this host: it runs until it is stopped.
    pub fn start_policy(&self, policy: &Policy) -> Result<PolicyInfo, ClientError> {
        self.call("POST", "/v1/policies", Some(policy))
    }

    /// The last decisions of a policy with their causes, oldest first; of all its policies, if `name` is a channel or a
    /// group.
    pub fn policy_explanations(&self, name: &Name) -> Result<Vec<Explanation>, ClientError> {
        self.get(&format!("/v1/policies/{name}/why"))
    }

    /// Stops it.
    pub fn stop_policy(&self, name: &Name) -> Result<(), ClientError> {
        self.exchange("DELETE", &format!("/v1/policies/{name}"), None).map(drop)
    }

    pub(super) fn create_channel(&self, request: &ChannelRequest) -> Result<ChannelInfo, ClientError> {
        self.call("POST", "/v1/channels", Some(request))
    }

    pub(super) fn open_channel(&self, channel: &ChannelId, lease: LeaseId) -> Result<ChannelInfo, ClientError> {
        self.call("POST", &format!("{}/open", path(channel)), Some(&Lease { lease }))
    }

    pub(super) fn close_channel(&self, channel: &ChannelId, lease: LeaseId) -> Result<(), ClientError> {
        self.tell("POST", &format!("{}/close", path(channel)), &Lease { lease })
    }

    pub(super) fn join_source(&self, channel: &ChannelId, request: &SourceRequest) -> Result<Joined, ClientError> {
        self.call("POST", &format!("{}/sources", path(channel)), Some(request))
    }

    pub(super) fn join_sink(&self, channel: &ChannelId, request: &SinkRequest) -> Result<Joined, ClientError> {
        self.call("POST", &format!("{}/sinks", path(channel)), Some(request))
    }

    /// `what`: `sources`, `sinks` or `registrations`.
    pub(super) fn leave(&self, what: &str, number: u32) -> Result<(), ClientError> {
        self.exchange("DELETE", &format!("/v1/{what}/{number}"), None).map(drop)
    }

    pub(super) fn change_member(&self, what: &str, number: u32, changes: &AttributeChanges) -> Result<(), ClientError> {
        self.tell("PATCH", &format!("/v1/{what}/{number}"), changes)
    }

    pub(super) fn join_group(&self, request: &GroupRequest) -> Result<Registered, ClientError> {
        self.call("POST", "/v1/groups", Some(request))
    }

    /// Installs or replaces a filter of a channel.
    pub fn install_filter(
        &self,
        channel: &ChannelId,
        direction: Direction,
        name: &Name,
        request: &FilterRequest,
    ) -> Result<Installed, ClientError> {
        self.call("PUT", &filter(channel, direction, name), Some(request))
    }

    /// Changes parameters of a filter.
    pub fn set_filter_parameters(
        &self,
        channel: &ChannelId,
        direction: Direction,
        name: &Name,
        request: &ParameterRequest,
    ) -> Result<Installed, ClientError> {
        self.call("PATCH", &filter(channel, direction, name), Some(request))
    }

    /// Removes a filter.
    pub fn remove_filter(
        &self,
        channel: &ChannelId,
        direction: Direction,
        name: &Name,
        to: FilterScope,
    ) -> Result<Installed, ClientError> {
        let path = format!("{}/remove", filter(channel, direction, name));
        self.call("POST", &path, Some(&FilterRemoval { to }))
    }

    pub(super) fn bind_filter(
        &self,
        channel: &ChannelId,
        direction: Direction,
        name: &Name,
        request: &BindingRequest,
    ) -> Result<Joined, ClientError> {
        self.call("POST", &format!("{}/bindings", filter(channel, direction, name)), Some(request))
    }

    fn tell<Q: serde::Serialize>(&self, method: &str, path: &str, body: &Q) -> Result<(), ClientError> {
        let body = serde_json::to_vec(body).expect("the API's bodies are plain values");
        self.exchange(method, path, Some(body)).map(drop)
    }
}

/// Names have nothing that a path would need to hide.
fn path(channel: &ChannelId) -> String {
    format!("/v1/channels/{channel}")
}

fn filter(channel: &ChannelId, direction: Direction, name: &Name) -> String {
    format!("{}/filters/{}/{name}", path(channel), direction.name())
}
