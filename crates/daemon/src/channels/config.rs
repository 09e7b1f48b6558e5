//! Q-channels between hosts: the section `[channels]` of the configuration.

use std::path::{Path, PathBuf};

use qfabric_channel::Limits;
use qfabric_link::Address;
use qfabric_types::Nanos;
use qfabric_types::api::channel::Policy;
use qfabric_types::channel::Name;
use serde::Deserialize;

use super::rules::Rule;

/// Whether this host takes part, under which name, and whom it believes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelsConfig {
    /// Whether this host has channels at all.
    pub enabled: bool,
    /// Hosts of another realm are not seen, though they may share the network.
    pub realm: Name,
    /// This host's name. None: its host name.
    pub host: Option<Name>,
    /// What carries events between hosts.
    pub engine: EngineName,
    /// Whether it relays for others.
    pub mode: Mode,
    /// Where others reach it: `HOST:PORT`, with `tcp` also `unix:/PATH`. Zenoh takes the next port, too.
    pub listen: Vec<String>,
    /// Whom it calls, again and again until they are there.
    pub connect: Vec<String>,
    /// Whom it finds beyond those.
    pub scouting: Scouting,
    /// Folder with `ca.pem`, and certificate and key of this host, as `qfabric channel issue` writes them.
    pub tls: Option<PathBuf>,
    /// Who may do what. None: `access.toml` beside the certificates.
    pub access: Option<PathBuf>,
    /// Nobody proves who he is: for loopback and Unix sockets only.
    pub insecure: bool,
    /// Real-time priority (SCHED_FIFO) of the threads between an event and the network; 0: none.
    pub priority: u32,
    /// Connections to `channels.sock` at the same time; of these, at most so many of one user (root excepted).
    pub max_leases: usize,
    /// See [`ChannelsConfig::max_leases`].
    pub max_leases_per_user: usize,
    /// Sources and sinks that one user (administrators excepted) has at the same time; on one channel, at most a quarter of
    /// what the channel may have.
    pub max_members_per_user: usize,
    /// CPU time that each policy of a user (root excepted) may take per second.
    #[serde(deserialize_with = "crate::config::time")]
    pub policy_budget: Nanos,
    /// How often this host tells the sources of its channels at what rate their events arrive; 0: never.
    #[serde(deserialize_with = "crate::config::time")]
    pub report: Nanos,
    /// Whether it lends CPU time to hosts whose applications are refused there, and asks them when its own are.
    pub lend: Lend,
    /// For how long another host is to keep what an application was refused here.
    #[serde(deserialize_with = "crate::config::time")]
    pub lend_hold: Nanos,
    /// Which users may do what on which channels: tables `[[channels.rule]]`. None: every user, what this host may.
    #[serde(rename = "rule")]
    pub rules: Vec<Rule>,
    /// What its resource manager does from the start: tables `[[channels.policy]]`.
    pub policy: Vec<Policy>,
}

/// What carries events between hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// Between machines, authenticated.
    #[default]
    Zenoh,
    /// Plain sockets, within one machine.
    Tcp,
    /// Nothing: channels between the applications of this host.
    None,
}

/// Whether a host relays for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It talks to all hosts of its site directly.
    #[default]
    Peer,
    /// It also relays: one per site, for more than one site.
    Router,
}

/// Whom a host finds beyond those it is told to call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scouting {
    /// Nobody.
    #[default]
    Configured,
    /// Those that the others know.
    Gossip,
    /// Also whoever answers on the local network.
    Multicast,
}

/// Whether hosts lend to each other, and which offer wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lend {
    /// Neither lends nor asks.
    #[default]
    Off,
    /// Lends, and never asks.
    Give,
    /// Lends, and asks; the first offer wins.
    First,
    /// The one that has most left, of those that come within half a second.
    Best,
    /// The one with the shortest way, of those that come within half a second.
    Nearest,
}

impl Default for ChannelsConfig {
    fn default() -> Self {
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
            max_leases: 256,
            max_leases_per_user: 64,
            max_members_per_user: Limits::HOST_MEMBERS / 4,
            policy_budget: Nanos::from_millis(10),
            report: Nanos::from_millis(500),
            lend: Lend::Off,
            lend_hold: Nanos::from_millis(30_000),
            rules: Vec::new(),
            policy: Vec::new(),
        }
    }
}

/// A key, its value, and what would have been accepted.
pub(crate) type OutOfRange = (&'static str, String, &'static str);

impl ChannelsConfig {
    /// What cannot be meant, if anything.
    pub(crate) fn out_of_range(&self) -> Option<OutOfRange> {
        let counts = [
            ("channels.max_leases", self.max_leases, 1..=4096, "1 to 4096"),
            ("channels.max_leases_per_user", self.max_leases_per_user, 1..=4096, "1 to 4096"),
            ("channels.max_members_per_user", self.max_members_per_user, 1..=Limits::HOST_MEMBERS, "1 to 16384"),
            ("channels.priority", self.priority as usize, 0..=98, "0 (none) to 98"),
        ];
        let wrong = counts.into_iter().find(|(_, value, range, _)| !range.contains(value));
        if let Some((key, value, _, expected)) = wrong {
            return Some((key, value.to_string(), expected));
        }
        if !(Nanos::from_millis(1)..=Nanos::from_millis(1_000)).contains(&self.policy_budget) {
            return Some(("channels.policy_budget", self.policy_budget.to_string(), "1ms to 1s, per second"));
        }
        let (least, most) = (Nanos::from_millis(50), Nanos::from_millis(60_000));
        if self.report != Nanos::ZERO && !(least..=most).contains(&self.report) {
            return Some(("channels.report", self.report.to_string(), "50ms to 60s, or 0ms for never"));
        }
        let (least, most) = (Nanos::from_millis(3_000), Nanos::from_millis(600_000));
        if !(least..=most).contains(&self.lend_hold) {
            return Some(("channels.lend_hold", self.lend_hold.to_string(), "3s to 600s"));
        }
        if let Some(name) = self.rules.iter().find_map(Rule::bad_name) {
            return Some((
                "channels.rule",
                format!("{name:?}"),
                "a channel's name, the beginning of names and `*`, or `*`",
            ));
        }
        self.enabled.then(|| self.untrusted().or_else(|| self.nameless())).flatten()
    }

    /// Somebody has to be believed for a reason.
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
            _ => None,
        }
    }

    /// Whom nobody can believe without certificates: what comes from beyond this machine.
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

    /// This host's name; none where the machine's own is none.
    pub(crate) fn name(&self) -> Option<Name> {
        let own = || rustix::system::uname().nodename().to_string_lossy().parse().ok();
        self.host.clone().or_else(own)
    }

    /// The access list's place.
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
        assert_eq!(said("enabled = true\nengine = 'none'"), "", "nobody else is there");
    }

    #[test]
    fn without_certificates_nothing_beyond_this_machine_is_reached() {
        let insecure = |more: &str| said(&format!("enabled = true\ninsecure = true\n{more}"));
        assert_eq!(insecure("listen = ['127.0.0.1:7447', '[::1]:7449']\nconnect = ['localhost:7447']"), "");
        assert!(insecure("listen = ['0.0.0.0:7447']").starts_with("channels.listen \"0.0.0.0:7447\""));
        assert!(insecure("connect = ['cam-1:7447']").starts_with("channels.connect \"cam-1:7447\""));
        assert!(insecure("scouting = 'multicast'").starts_with("channels.scouting multicast"));
        assert_eq!(said("insecure = true\nlisten = ['0.0.0.0:7447']"), "", "it is off");
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
        assert!(said("report = '1ms'").starts_with("channels.report 1 ms 50ms to 60s"));
        assert!(said("lend_hold = '1s'").starts_with("channels.lend_hold 1 s 3s to 600s"));
        assert!(said("max_leases = 0").starts_with("channels.max_leases 0"));
        let error = toml::from_str::<ChannelsConfig>("host = 'a/b'").unwrap_err().to_string();
        assert!(error.contains("a/b") && error.contains("1 to 64"), "{error}");
    }
}
