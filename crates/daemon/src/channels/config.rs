//! Q-channels between hosts: the section `[channels]` of the configuration.

use std::path::{Path, PathBuf};

use qfabric_channel::Limits;
use qfabric_link::{Address, Buffers};
use qfabric_types::api::channel::Policy;
use qfabric_types::channel::Name;
use qfabric_types::{Bytes, Nanos};
use serde::Deserialize;

use super::path::KernelPathConfig;
use super::rules::Rule;
use crate::memory::MemoryAmount;

/// Largest buffer of a data connection that may be configured.
const LARGEST_BUFFER: Bytes = Bytes::from_mib(16);
/// Smallest one: an event of the largest size that travels in one piece.
const SMALLEST_BUFFER: u64 = 16 << 10;

/// Whether this host takes part, its name, its network and its limits.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelsConfig {
    /// Whether this host has channels at all.
    pub enabled: bool,
    /// Hosts of another realm are ignored, even on the same network.
    pub realm: Name,
    /// Name of this host; by default the machine's host name.
    pub host: Option<Name>,
    /// Network layer that carries events between hosts.
    pub engine: EngineName,
    /// Whether this host relays events for other hosts.
    pub mode: Mode,
    /// Addresses at which other hosts reach this one: `HOST:PORT`, with `tcp` also `unix:/PATH`. Zenoh also takes the
    /// next port.
    pub listen: Vec<String>,
    /// Addresses that this host connects to; it retries until they answer.
    pub connect: Vec<String>,
    /// How this host finds hosts that are not in `connect`.
    pub scouting: Scouting,
    /// Directory with `ca.pem`, and with this host's certificate and key, as `qfabric channel issue` writes them.
    pub tls: Option<PathBuf>,
    /// Access list; by default `access.toml` beside the certificates.
    pub access: Option<PathBuf>,
    /// No host proves its identity: for loopback and Unix sockets only.
    pub insecure: bool,
    /// Real-time priority (SCHED_FIFO) of the threads that carry events to and from the network; 0: none.
    pub priority: u32,
    /// The kernel's send buffer of the data connection to each other host; 0: the kernel chooses. Larger: more throughput
    /// over long links; smaller: behind a slow link, old events are dropped earlier.
    pub send_buffer: MemoryAmount,
    /// The kernel's receive buffer of the data connection to each other host; 0: the kernel chooses.
    pub receive_buffer: MemoryAmount,
    /// Largest number of connections to `channels.sock` at the same time.
    pub max_leases: usize,
    /// Largest number of connections of one user at the same time; root is excepted.
    pub max_leases_per_user: usize,
    /// Largest number of sources and sinks of one user at the same time; administrators are excepted. On one
    /// channel a user may have at most a quarter of the channel's limit.
    pub max_members_per_user: usize,
    /// Largest number of instructions that one filter may execute for one event, and all filters of a user on one
    /// channel and in one direction together, at worst; administrators are excepted from the sum.
    pub max_filter_instructions: u32,
    /// Largest number of instructions per second that the filters of one user, or those of one other host, may execute;
    /// above it they drop the events of the senders that cause the most. Administrators are excepted.
    pub max_filter_instructions_per_second: u64,
    /// CPU time that each policy of a user may take per second; root is excepted.
    #[serde(deserialize_with = "crate::config::time")]
    pub policy_budget: Nanos,
    /// Interval at which this host reports the arrival rate of events to the sources of its channels; 0: never.
    #[serde(deserialize_with = "crate::config::time")]
    pub report: Nanos,
    /// The router of the access list that passes this host's events on Q-channels on to other hosts, those of several
    /// hosts in one frame; by default none, and events go directly.
    pub combiner: Option<Name>,
    /// Time for which readings of this host's monitor may wait on their way to other hosts, to go there in one frame
    /// with others; 0: they do not wait.
    #[serde(deserialize_with = "crate::config::time")]
    pub slack: Nanos,
    /// Whether this host lends CPU time and memory to other hosts, and asks them for a loan when it refuses an
    /// application.
    pub lend: Lend,
    /// How long a lender keeps capacity for an application that this host refused.
    #[serde(deserialize_with = "crate::config::time")]
    pub lend_hold: Nanos,
    /// Whether this host takes part in joint contracts of other hosts, and its users may ask for resources of other
    /// hosts. Contracts over this host alone are always possible.
    pub contracts: bool,
    /// Whether this host takes part in ECalls between hosts: its users may ask other hosts to install their handlers, and
    /// tables `[[ecalls.host]]` say whose handlers it installs.
    pub ecalls: bool,
    /// The kernel path for changes of filter parameters; none by default.
    pub kernel_path: Option<KernelPathConfig>,
    /// Rights of users on channels: tables `[[channels.rule]]`. Without rules, every user may do what this host may.
    #[serde(rename = "rule")]
    pub rules: Vec<Rule>,
    /// Policies that run from the start: tables `[[channels.policy]]`.
    pub policy: Vec<Policy>,
}

/// Network layer that carries events between hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// Between machines, authenticated.
    #[default]
    Zenoh,
    /// Plain sockets, within one machine.
    Tcp,
    /// No network: channels connect only the applications of this host.
    None,
}

/// Whether a host relays events for other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Talks to all hosts of its site directly.
    #[default]
    Peer,
    /// Also relays events between sites; each site has one router.
    Router,
}

/// How a host finds hosts that are not in `connect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scouting {
    /// It finds none.
    #[default]
    Configured,
    /// From the hosts that it is connected to.
    Gossip,
    /// Also from announcements on the local network.
    Multicast,
}

/// Whether this host lends and borrows, and which offer it accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lend {
    /// Neither lends nor borrows.
    #[default]
    Off,
    /// Lends, but does not borrow.
    Give,
    /// Lends and borrows; accepts the first offer.
    First,
    /// Accepts the offer of the host with the most free capacity, among the offers that arrive within 0.5 s.
    Best,
    /// Accepts the offer of the host with the shortest network path, among the offers that arrive within 0.5 s.
    Nearest,
}

impl Default for ChannelsConfig {
    fn default() -> Self {
        let Buffers { send, receive } = Buffers::default();
        let [send_buffer, receive_buffer] = [send, receive].map(|bytes| MemoryAmount(Bytes::new(bytes.into())));
        ChannelsConfig {
            enabled: false,
            realm: "default".parse().expect("is a name"),
            host: None,
            engine: EngineName::Zenoh,
            mode: Mode::Peer,
            listen: Vec::new(),
            connect: Vec::new(),
            scouting: Scouting::Configured,
            tls: None,
            access: None,
            insecure: false,
            priority: 1,
            send_buffer,
            receive_buffer,
            max_leases: 256,
            max_leases_per_user: 64,
            max_members_per_user: Limits::HOST_MEMBERS / 4,
            max_filter_instructions: 200_000,
            max_filter_instructions_per_second: Limits::FILTER_RATE,
            policy_budget: Nanos::from_millis(10),
            report: Nanos::from_millis(500),
            combiner: None,
            slack: Nanos::ZERO,
            lend: Lend::Off,
            lend_hold: Nanos::from_millis(30_000),
            contracts: false,
            ecalls: false,
            kernel_path: None,
            rules: Vec::new(),
            policy: Vec::new(),
        }
    }
}

/// A key, its value, and the accepted values.
pub(crate) type OutOfRange = (&'static str, String, &'static str);

impl ChannelsConfig {
    /// This configuration, with the keys of `new` that do not need a restart: those that are read at each request or by
    /// one setter. The others make the network, its threads and the memberships of this host at the start.
    pub(super) fn reloaded(&self, new: &ChannelsConfig) -> ChannelsConfig {
        ChannelsConfig {
            max_leases: new.max_leases,
            max_leases_per_user: new.max_leases_per_user,
            max_members_per_user: new.max_members_per_user,
            max_filter_instructions: new.max_filter_instructions,
            max_filter_instructions_per_second: new.max_filter_instructions_per_second,
            policy_budget: new.policy_budget,
            slack: new.slack,
            lend_hold: new.lend_hold,
            rules: new.rules.clone(),
            ..self.clone()
        }
    }

    /// The first setting with an invalid value.
    pub(crate) fn out_of_range(&self) -> Option<OutOfRange> {
        let counts = [
            ("channels.max_leases", self.max_leases, 1..=4096, "1 to 4096"),
            ("channels.max_leases_per_user", self.max_leases_per_user, 1..=4096, "1 to 4096"),
            ("channels.max_members_per_user", self.max_members_per_user, 1..=Limits::HOST_MEMBERS, "1 to 16384"),
            (
                "channels.max_filter_instructions",
                self.max_filter_instructions as usize,
                1..=100_000_000,
                "1 to 100000000",
            ),
            (
                "channels.max_filter_instructions_per_second",
                self.max_filter_instructions_per_second as usize,
                1_000..=1_000_000_000_000,
                "1000 to 1000000000000",
            ),
            ("channels.priority", self.priority as usize, 0..=98, "0 (none) to 98"),
        ];
        let wrong = counts.into_iter().find(|(_, value, range, _)| !range.contains(value));
        if let Some((key, value, _, expected)) = wrong {
            return Some((key, value.to_string(), expected));
        }
        if let Some(wrong) = self.bad_buffer() {
            return Some(wrong);
        }
        if !(Nanos::from_millis(1)..=Nanos::from_millis(1_000)).contains(&self.policy_budget) {
            return Some(("channels.policy_budget", self.policy_budget.to_string(), "1ms to 1s, per second"));
        }
        let (least, most) = (Nanos::from_millis(50), Nanos::from_millis(60_000));
        if self.report != Nanos::ZERO && !(least..=most).contains(&self.report) {
            return Some(("channels.report", self.report.to_string(), "50ms to 60s, or 0ms for never"));
        }
        if self.slack > Limits::SLACK {
            return Some(("channels.slack", self.slack.to_string(), "0ms to 10s"));
        }
        let (least, most) = (Nanos::from_millis(3_000), Nanos::from_millis(600_000));
        if !(least..=most).contains(&self.lend_hold) {
            return Some(("channels.lend_hold", self.lend_hold.to_string(), "3s to 600s"));
        }
        if let Some(name) = self.rules.iter().find_map(Rule::bad_name) {
            return Some(("channels.rule", format!("{name:?}"), "a channel name, a prefix followed by `*`, or `*`"));
        }
        if let Some(wrong) = self.kernel_path.as_ref().and_then(KernelPathConfig::out_of_range) {
            return Some(wrong);
        }
        self.enabled.then(|| self.untrusted().or_else(|| self.nameless())).flatten()
    }

    fn bad_buffer(&self) -> Option<OutOfRange> {
        let range = SMALLEST_BUFFER..=LARGEST_BUFFER.get();
        let both = [("channels.send_buffer", self.send_buffer), ("channels.receive_buffer", self.receive_buffer)];
        let is_wrong = |amount: MemoryAmount| amount.0.get() != 0 && !range.contains(&amount.0.get());
        let (key, MemoryAmount(bytes)) = both.into_iter().find(|(_, amount)| is_wrong(*amount))?;
        Some((key, bytes.to_string(), "16K to 16M, or 0 for the kernel's own choice"))
    }

    /// With a network, exactly one of `tls` and `insecure` must be set.
    fn untrusted(&self) -> Option<OutOfRange> {
        let (tls, networked) = (self.tls.is_some(), self.engine != EngineName::None);
        if let Some(beyond) = self.insecure.then(|| self.beyond()).flatten() {
            return Some(beyond);
        }
        match (networked, tls, self.insecure) {
            (true, false, false) => Some((
                "channels.tls",
                "not set".to_owned(),
                "the folder that `qfabric channel issue` wrote, or channels.insecure = true for loopback only",
            )),
            (_, true, true) => Some(("channels.insecure", "true beside channels.tls".to_owned(), "one of the two")),
            _ if self.kernel_path.is_some() && !(tls && self.engine == EngineName::Zenoh) => Some((
                "channels.kernel_path",
                "set without certificates".to_owned(),
                "channels.tls and the engine zenoh, by which hosts agree on keys; or remove the table",
            )),
            _ => None,
        }
    }

    /// An address beyond this machine, which needs certificates.
    fn beyond(&self) -> Option<OutOfRange> {
        let expected =
            "addresses of loopback and Unix sockets, or certificates (channels.tls) in place of channels.insecure";
        let lists = [("channels.listen", &self.listen), ("channels.connect", &self.connect)];
        let is_local = |text: &String| text.parse::<Address>().is_ok_and(|address| address.is_local());
        let remote = lists.into_iter().find_map(|(key, list)| Some((key, list.iter().find(|text| !is_local(text))?)));
        match (remote, self.scouting) {
            (Some((key, text)), _) => Some((key, format!("{text:?}"), expected)),
            (None, Scouting::Multicast) => Some(("channels.scouting", "multicast".to_owned(), expected)),
            (None, _) => None,
        }
    }

    fn nameless(&self) -> Option<OutOfRange> {
        let expected = "1 to 64 letters, digits, '.', '_' and '-', the first a letter or a digit";
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.name().is_none().then_some(("channels.host (by default the host name)", name, expected))
    }

    /// Name of this host; none if `host` is not set and the machine's host name is not a valid name.
    pub(crate) fn name(&self) -> Option<Name> {
        let own = || rustix::system::uname().nodename().to_string_lossy().parse().ok();
        self.host.clone().or_else(own)
    }

    pub(crate) fn access_file(&self, tls: &Path) -> PathBuf {
        self.access.clone().unwrap_or_else(|| tls.join("access.toml"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        let config: ChannelsConfig = toml::from_str(text).unwrap();
        config.out_of_range().map_or_else(String::new, |(key, value, expected)| format!("{key} {value} {expected}"))
    }

    #[test]
    fn a_host_without_certificates_says_that_it_believes_everybody() {
        assert_eq!(said(""), "", "off by default");
        assert!(said("enabled = true").contains("channel issue"));
        assert_eq!(said("enabled = true\ninsecure = true"), "");
        assert_eq!(said("enabled = true\ntls = '/etc/qfabric/tls'"), "");
        assert!(said("enabled = true\ninsecure = true\ntls = '/x'").contains("one of the two"));
        assert_eq!(said("enabled = true\nengine = 'none'"), "", "there is no network");
    }

    #[test]
    fn without_certificates_nothing_beyond_this_machine_is_reached() {
        let insecure = |more: &str| said(&format!("enabled = true\ninsecure = true\n{more}"));
        assert_eq!(insecure("listen = ['127.0.0.1:7447', '[::1]:7449']\nconnect = ['localhost:7447']"), "");
        assert!(insecure("listen = ['0.0.0.0:7447']").starts_with("channels.listen \"0.0.0.0:7447\""));
        assert!(insecure("connect = ['cam-1:7447']").starts_with("channels.connect \"cam-1:7447\""));
        assert!(insecure("scouting = 'multicast'").starts_with("channels.scouting multicast"));
        assert_eq!(said("insecure = true\nlisten = ['0.0.0.0:7447']"), "", "channels are off");
    }

    #[test]
    fn a_kernel_path_needs_certificates_one_address_and_sensible_keys() {
        let path = |more: &str, keys: &str| {
            said(&format!("enabled = true\n{more}\n[kernel_path]\ninterface = 'eth0'\naddress = '10.0.0.1:77'\n{keys}"))
        };
        assert_eq!(path("tls = '/x'", ""), "");
        assert_eq!(path("tls = '/x'", "renew = '10s'\nrenew_changes = 5"), "");
        assert!(path("insecure = true", "").starts_with("channels.kernel_path set without certificates"));
        assert!(path("tls = '/x'\nengine = 'tcp'", "").starts_with("channels.kernel_path set without"));
        assert!(path("tls = '/x'", "renew = '1ms'").starts_with("channels.kernel_path.renew 1 ms 1s to"));
        assert!(path("tls = '/x'", "renew_changes = 0").starts_with("channels.kernel_path.renew_changes 0 1 or more"));
        let any = said("[kernel_path]\ninterface = 'eth0'\naddress = '0.0.0.0:77'");
        assert!(any.starts_with("channels.kernel_path.address 0.0.0.0:77 one address"), "{any}");
        assert!(toml::from_str::<ChannelsConfig>("[kernel_path]\naddress = '10.0.0.1:77'").is_err());
    }

    #[test]
    fn rules_for_users_name_channels_rights_and_users() {
        assert_eq!(said("[[rule]]\nchannels = ['cam-*', '*']\nusers = [1000]\nrights = ['join', 'open']"), "");
        assert!(said("[[rule]]\nchannels = ['a/b']\nrights = ['join']").starts_with("channels.rule \"a/b\""));
        let error = toml::from_str::<ChannelsConfig>("[[rule]]\nchannels = ['a']\nrights = ['read']").unwrap_err();
        assert!(error.to_string().contains("join"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_named_with_what_would_be_taken() {
        assert!(said("priority = 99").starts_with("channels.priority 99 0 (none)"));
        assert_eq!(said("policy_budget = '2s'"), "channels.policy_budget 2 s 1ms to 1s, per second");
        assert!(said("send_buffer = '1K'").starts_with("channels.send_buffer "));
        assert!(said("receive_buffer = '17M'").ends_with("16K to 16M, or 0 for the kernel's own choice"));
        assert_eq!(said("send_buffer = '1M'\nreceive_buffer = 0"), "");
        assert!(said("report = '1ms'").starts_with("channels.report 1 ms 50ms to 60s"));
        assert!(said("slack = '11s'").starts_with("channels.slack 11 s 0ms to 10s"));
        assert!(said("lend_hold = '1s'").starts_with("channels.lend_hold 1 s 3s to 600s"));
        let rate = said("max_filter_instructions_per_second = 999");
        assert!(rate.starts_with("channels.max_filter_instructions_per_second 999 1000 to"), "{rate}");
        assert!(said("max_leases = 0").starts_with("channels.max_leases 0"));
        let error = toml::from_str::<ChannelsConfig>("host = 'a/b'").unwrap_err().to_string();
        assert!(error.contains("a/b") && error.contains("1 to 64"), "{error}");
    }
}
