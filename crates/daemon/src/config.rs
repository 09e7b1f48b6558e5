//! The configuration of the daemon, read from a TOML file.
//!
//! Every key has a default. An unknown key is refused with its line: a misspelt limit would otherwise be no limit.
//! Times have a unit (`"2ms"`); shares are fractions of one CPU.

use std::path::{Component, Path, PathBuf};

use qfabric_host::{CONTROL_BUDGET, CONTROL_PERIOD, Limits};
use qfabric_linux::cpus::CpuList;
use qfabric_types::api::{HostLimits, HostMemoryLimits, InvalidLimit, Problem};
use qfabric_types::text::is_plain;
use qfabric_types::{DispatchOrder, DispatchRules, MechanismName, Nanos, Owner, Reservation, Share};
use serde::{Deserialize, Deserializer};

use crate::channels::ChannelsConfig;
use crate::configured::{self, ContractConfig};
use crate::contracts::JointConfig;
use crate::ecalls::EcallsConfig;
use crate::energy::EnergyConfig;
use crate::memory::{MemoryConfig, check_reserve};
use crate::metrics::MetricsConfig;
use crate::net::NetConfig;
use crate::web::WebConfig;

/// Default path of the configuration file.
pub const CONFIG_PATH: &str = "/etc/qfabric/daemon.toml";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The local API.
    pub api: Api,
    /// The capacity that may be promised, and the maximum of each user, group and priority level.
    pub limits: HostLimits,
    /// The memory that may be promised.
    pub memory: MemoryConfig,
    /// The mechanism that applies settings.
    pub mechanism: MechanismConfig,
    pub control: Control,
    /// Rules that change contracts before admission.
    pub contracts: Contracts,
    /// Contracts for what units and control groups run.
    pub contract: Vec<ContractConfig>,
    /// Caps on the joint contracts of other hosts.
    pub joint: JointConfig,
    pub ecalls: EcallsConfig,
    /// Q-channels between hosts.
    pub channels: ChannelsConfig,
    /// Links that are open to all users.
    pub net: NetConfig,
    /// The account of energy.
    pub energy: EnergyConfig,
    /// Metrics on TCP.
    pub metrics: MetricsConfig,
    /// The web page.
    pub web: WebConfig,
    /// Logs.
    pub log: Log,
    /// The text that this was read from.
    #[serde(skip)]
    pub source: Source,
}

/// The tables of the text of a configuration; empty if it was not read from a text. It has no part in comparisons: two texts
/// may describe the same configuration.
#[derive(Clone, Debug, Default)]
pub struct Source(pub(crate) toml::Table);

impl PartialEq for Source {
    fn eq(&self, _: &Source) -> bool {
        true
    }
}

/// The local API's sockets and bounds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// Folder of `qfabric.sock`, `ring.sock`, the journal and the lock file. Default: `/run/qfabric` for root,
    /// `$XDG_RUNTIME_DIR/qfabric` for other users.
    pub directory: Option<PathBuf>,
    /// Permission bits of both sockets, in octal: the users that may send requests. The credentials of a caller
    /// decide which requests are allowed.
    #[serde(deserialize_with = "octal")]
    pub mode: u32,
    /// Group of both sockets, by name or number. Default: the group of the daemon.
    pub group: Option<String>,
    /// Largest number of connections at the same time, for each socket. One user may have at most a quarter of them;
    /// all users together leave an eighth to root and the service's own user. A further connection of a user is
    /// refused; one of an administrator waits.
    pub max_connections: usize,
    /// A request that is not complete, or not answered, after this time is aborted.
    #[serde(deserialize_with = "time")]
    pub timeout: Nanos,
}

/// The mechanism that applies settings.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MechanismConfig {
    pub name: MechanismName,
    /// `ext` only: the CPU time that all threads without a server get together, at least, on each CPU …
    #[serde(deserialize_with = "time")]
    pub best_effort: Nanos,
    /// … in every period of this length.
    #[serde(deserialize_with = "time")]
    pub best_effort_period: Nanos,
    /// `ext` only: the mechanism that takes over if the kernel ejects it.
    pub fallback: Fallback,
    /// `dispatcher` only: length of a slot.
    #[serde(deserialize_with = "time")]
    pub slot: Nanos,
    /// `dispatcher` only: least part of each CPU that stays free for time-sharing work.
    pub free: Share,
    /// `dispatcher` only: the order in which groups get slots.
    pub order: DispatchOrder,
    /// `dispatcher` only: the longest time that an idle CPU may need to wake up, while a table has groups; zero: idle
    /// CPUs poll. Default: the kernel decides.
    #[serde(deserialize_with = "some_time")]
    pub idle_latency: Option<Nanos>,
}

impl MechanismConfig {
    /// The rules of dispatch tables.
    pub fn rules(&self) -> DispatchRules {
        DispatchRules { slot: self.slot, free: self.free, order: self.order }
    }
}

/// The mechanism that takes over after an ejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// SCHED_DEADLINE: applications whose contracts it can serve continue.
    #[default]
    Deadline,
    /// No mechanism: every thread stays under the normal scheduler.
    None,
}

/// The control thread.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// Q of the control thread's reservation; `"0ms"` for no reservation.
    #[serde(deserialize_with = "time")]
    pub budget: Nanos,
    /// P of the control thread's reservation.
    #[serde(deserialize_with = "time")]
    pub period: Nanos,
    /// Whether the daemon locks its memory, so that a decision never waits for a disk.
    pub lock_memory: bool,
    /// Largest number of records that one look takes from one ring; the others wait for the next look.
    pub jobs_per_look: usize,
    /// Time that an application may continue without its ring after its lease has closed.
    #[serde(deserialize_with = "time")]
    pub lease_grace: Nanos,
}

/// Rules that change contracts before admission.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contracts {
    /// Who decides about GRUB reclaiming.
    pub reclaim: Reclaim,
}

/// Who decides about `SCHED_FLAG_RECLAIM`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reclaim {
    /// The contract decides; its own default is yes.
    #[default]
    AsAsked,
    /// Always on: unused reserved time prevents deadline misses of others.
    Always,
    /// Always off: no application gets more than its budget.
    Never,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub format: LogFormat,
    /// A filter in the syntax of `tracing`; the environment variable `QFABRIC_LOG` overrides it.
    pub filter: String,
    /// The level given on the command line; it overrides both.
    #[serde(skip)]
    pub level: Option<LogLevel>,
}

/// The least important lines that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    pub const ALL: [LogLevel; 5] = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];

    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// JSON for programs, one object per line.
    Json,
}

impl Default for Api {
    fn default() -> Self {
        Api { directory: None, mode: 0o666, group: None, max_connections: 128, timeout: Nanos::from_millis(5_000) }
    }
}

impl Default for MechanismConfig {
    fn default() -> Self {
        let DispatchRules { slot, free, order } = DispatchRules::default();
        MechanismConfig {
            name: MechanismName::Auto,
            best_effort: Nanos::from_millis(1),
            best_effort_period: Nanos::from_millis(20),
            fallback: Fallback::Deadline,
            slot,
            free,
            order,
            idle_latency: None,
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        Control {
            // EDF runs the control thread before applications whose deadlines are farther away than this period.
            budget: CONTROL_BUDGET,
            period: CONTROL_PERIOD,
            lock_memory: true,
            jobs_per_look: 64,
            lease_grace: Nanos::from_millis(500),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Log { format: LogFormat::Text, filter: "info".to_owned(), level: None }
    }
}

/// The configuration is not valid. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InvalidConfig {
    /// The file does not exist, or the service may not read it.
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The file is not valid TOML, or has an unknown key or an invalid value.
    Syntax {
        path: PathBuf,
        /// Line and key, and the keys or values that are valid there.
        text: String,
    },
    /// A value is outside its range.
    OutOfRange {
        /// Dotted name of the key, such as `api.timeout`.
        key: &'static str,
        value: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// The power model is not valid.
    Model { why: String },
    /// The folder of the sockets is not known.
    NoDirectory,
}

impl InvalidConfig {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            InvalidConfig::Unreadable { path, source } => (
                format!("cannot read {}: {source}", path.display()),
                "name another file with --config, or omit it for the defaults".to_owned(),
            ),
            InvalidConfig::Syntax { path, text } => (
                format!("{}: {}", path.display(), text.trim_end()),
                "correct the file, then check it with `qfabric daemon --check`".to_owned(),
            ),
            InvalidConfig::OutOfRange { key, value, expected } => {
                (format!("{key} is {value}"), format!("use {expected}"))
            }
            InvalidConfig::Model { why } => {
                (format!("energy.model: {why}"), "name a shipped model, or the file of a model".to_owned())
            }
            InvalidConfig::NoDirectory => (
                "no folder for the sockets: $XDG_RUNTIME_DIR is not set".to_owned(),
                "set this variable or api.directory".to_owned(),
            ),
        };
        Problem::new("invalid_config", message, next_step)
    }
}

impl Config {
    /// Reads `path`; without a path, reads [`CONFIG_PATH`] if that file exists, else returns the defaults.
    pub fn load(path: Option<&Path>) -> Result<Config, InvalidConfig> {
        let standard = Path::new(CONFIG_PATH);
        match path {
            Some(path) => Config::read(path),
            None if standard.exists() => Config::read(standard),
            None => Ok(Config::default()),
        }
    }

    fn read(path: &Path) -> Result<Config, InvalidConfig> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| InvalidConfig::Unreadable { path: path.to_owned(), source })?;
        Config::parse(&text, path)
    }

    /// Parses and checks `text`, which came from `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Config, InvalidConfig> {
        let syntax = |error: toml::de::Error| InvalidConfig::Syntax { path: path.to_owned(), text: error.to_string() };
        let mut config: Config = toml::from_str(text).map_err(syntax)?;
        config.source = Source(toml::from_str(text).map_err(syntax)?);
        config.check()?;
        Ok(config)
    }

    /// Checks every value that does not depend on this machine. The error names the first one out of range.
    pub fn check(&self) -> Result<(), InvalidConfig> {
        let Config { api, control, .. } = self;
        within("api.max_connections", api.max_connections, 1, 10_000, "1 to 10000")?;
        within("api.timeout", api.timeout, Nanos::from_millis(10), Nanos::from_millis(600_000), "10ms to 600s")?;
        within("api.mode", api.mode, 0o600, 0o777, "octal permission bits, 0600 to 0777")?;
        if let Some(directory) = &api.directory {
            plain_path("api.directory", directory)?;
        }
        self.limits.check()?;
        within("control.jobs_per_look", control.jobs_per_look, 1, 256, "1 to 256, the records a ring holds")?;
        within("control.lease_grace", control.lease_grace, Nanos::ZERO, Nanos::from_millis(60_000), "0ms to 60s")?;
        if self.limits.memory != HostMemoryLimits::default() {
            return Err(out_of_range("limits.memory", "set", "the section [memory]"));
        }
        self.memory.host_limits().check()?;
        if let Some((key, value, expected)) = self.joint.out_of_range() {
            return Err(out_of_range(key, value, expected));
        }
        if let Some((key, value, expected)) = self.ecalls.out_of_range() {
            return Err(out_of_range(key, value, expected));
        }
        for (key, path) in [("channels.tls", &self.channels.tls), ("channels.access", &self.channels.access)] {
            path.as_deref().map_or(Ok(()), |path| plain_path(key, path))?;
        }
        if let Some((key, value, expected)) = self.channels.out_of_range() {
            return Err(out_of_range(key, value, expected));
        }
        configured::check(&self.contract)?;
        self.net.check()?;
        self.energy.check()?;
        self.metrics.check()?;
        self.web.check()?;
        self.best_effort_lives()?;
        self.slots_are_possible()?;
        self.control_reservation().map(drop)
    }

    /// The sections `[limits]` and `[memory]` in the form of the API.
    pub(crate) fn host_limits(&self) -> HostLimits {
        HostLimits { memory: self.memory.host_limits(), ..self.limits.clone() }
    }

    /// Checks the values that depend on this machine.
    pub fn check_here(&self) -> Result<(), InvalidConfig> {
        if let Some(total) = qfabric_linux::memory::total() {
            check_reserve(&self.memory.host_limits(), total)?;
        }
        check_capacity(self.limits.capacity).map_err(Into::into)
    }

    fn best_effort_lives(&self) -> Result<(), InvalidConfig> {
        let MechanismConfig { best_effort, best_effort_period, .. } = self.mechanism;
        match crate::control::best_effort_is_possible(best_effort, best_effort_period) {
            true => Ok(()),
            false => {
                let value = format!("{best_effort} in {best_effort_period}");
                let expected = "1 % to 90 % of a CPU, such as 1ms in 20ms";
                Err(out_of_range("mechanism.best_effort, mechanism.best_effort_period", value, expected))
            }
        }
    }

    fn slots_are_possible(&self) -> Result<(), InvalidConfig> {
        let ((shortest, longest), (least, most)) = (DispatchRules::SLOTS, DispatchRules::FREE);
        within("mechanism.slot", self.mechanism.slot, shortest, longest, "1ms to 100ms")?;
        within("mechanism.free", self.mechanism.free, least, most, "0.05 to 0.9")?;
        let idle_latency = self.mechanism.idle_latency.unwrap_or_default();
        within("mechanism.idle_latency", idle_latency, Nanos::ZERO, Nanos::from_millis(10), "0ms to 10ms")
    }

    /// The control thread's reservation, or `None` if the budget is 0.
    pub fn control_reservation(&self) -> Result<Option<Reservation>, InvalidConfig> {
        let Control { budget, period, .. } = self.control;
        if budget == Nanos::ZERO {
            return Ok(None);
        }
        let refused = |why: qfabric_types::InvalidReservation| {
            out_of_range("control.budget, control.period", why, "a budget below its period, such as 100us and 2ms")
        };
        Reservation::new(budget, period).map(Some).map_err(refused)
    }

    /// The folder for sockets, journal and lock file.
    pub fn directory(&self) -> Result<PathBuf, InvalidConfig> {
        match &self.api.directory {
            Some(directory) => Ok(directory.clone()),
            None if rustix::process::geteuid().is_root() => Ok(PathBuf::from("/run/qfabric")),
            None => std::env::var_os("XDG_RUNTIME_DIR")
                .map(|runtime| PathBuf::from(runtime).join("qfabric"))
                .ok_or(InvalidConfig::NoDirectory),
        }
    }

    /// Sets `api.directory`, the folder of the sockets, the journal and the lock file.
    pub fn in_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.api.directory = Some(directory.into());
        self
    }
}

impl From<InvalidLimit> for InvalidConfig {
    fn from(limit: InvalidLimit) -> Self {
        let InvalidLimit { key, value, expected } = limit;
        InvalidConfig::OutOfRange { key, value, expected }
    }
}

/// The limits for the supervisor, with the `capacity` that may be promised now.
pub(crate) fn supervisor_limits(limits: &HostLimits, capacity: Share) -> Limits {
    let HostLimits { levels, users, groups, default_user, .. } = limits.clone();
    let exempt = [0, rustix::process::geteuid().as_raw()].into();
    Limits { capacity, levels, users, groups, default_user, exempt }
}

/// The user and group that an application counts against: the user of its process and, of all groups of the
/// process, the one with the smallest maximum. So a program cannot escape a maximum by running under another of its
/// groups. If no group has a maximum, the group that the process runs under.
pub(crate) fn counted_for(limits: &HostLimits, owner: Owner, groups: &[u32]) -> Owner {
    let own = groups.iter().chain([&owner.gid]);
    let tightest = own.filter_map(|gid| Some((limits.groups.get(gid)?, *gid))).min();
    Owner { gid: tightest.map_or(owner.gid, |(_, gid)| gid), ..owner }
}

fn within<T: PartialOrd + ToString>(
    key: &'static str,
    value: T,
    low: T,
    high: T,
    expected: &'static str,
) -> Result<(), InvalidConfig> {
    if (low..=high).contains(&value) { Ok(()) } else { Err(out_of_range(key, value, expected)) }
}

/// Refuses a path with `..` or control characters, because it could name another place than the one it seems to
/// name.
pub(crate) fn plain_path(key: &'static str, path: &Path) -> Result<(), InvalidConfig> {
    let goes_up = path.components().any(|part| part == Component::ParentDir);
    let text = path.to_string_lossy();
    match text.is_empty() || goes_up || !text.chars().all(is_plain) {
        true => Err(out_of_range(key, format!("{text:?}"), "a path without `..` and control characters")),
        false => Ok(()),
    }
}

/// Checks that this machine has as many CPUs as `capacity`.
pub(crate) fn check_capacity(capacity: Option<Share>) -> Result<(), InvalidLimit> {
    let cpus = CpuList::read("/sys/devices/system/cpu/present").map_or(0, |present| present.len());
    match capacity {
        Some(capacity) if cpus > 0 && capacity.as_f64() > cpus as f64 => {
            let expected = "no more than the CPUs of this machine, or remove the key to use what the kernel admits";
            let value = format!("{capacity} on a machine with {cpus}");
            Err(InvalidLimit { key: "limits.capacity", value, expected })
        }
        _ => Ok(()),
    }
}

pub(crate) fn out_of_range(key: &'static str, value: impl ToString, expected: &'static str) -> InvalidConfig {
    InvalidConfig::OutOfRange { key, value: value.to_string(), expected }
}

pub(crate) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

fn some_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nanos>, D::Error> {
    time(deserializer).map(Some)
}

/// Reads `"0660"`, the usual form of permission bits. A TOML number would be read as decimal.
fn octal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let text = String::deserialize(deserializer)?;
    let refused = |_| serde::de::Error::custom(format!("{text:?} is not a mode in octal, such as \"0660\""));
    u32::from_str_radix(&text, 8).map_err(refused)
}

#[cfg(test)]
mod tests {
    use qfabric_types::api::channel::Policy;

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("daemon.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_gives_the_defaults() {
        assert_eq!(parse(""), Ok(Config::default()));
        assert_eq!(Config::default().check().map_err(|e| e.to_string()), Ok(()));
    }

    #[test]
    fn the_shipped_example_parses_to_the_defaults() {
        let shipped = include_str!("../../../packaging/daemon.toml");
        assert_eq!(parse(shipped), Ok(Config::default()));
    }

    #[test]
    fn every_commented_example_line_parses() {
        let uncommented: String = include_str!("../../../packaging/daemon.toml")
            .lines()
            .map(|line| line.strip_prefix("#:").unwrap_or(line).to_owned() + "\n")
            .collect();
        let config = parse(&uncommented).expect("packaging/daemon.toml shows only keys that exist");
        assert_eq!(config.limits.users.get(&1000), Some(&Share::from_ppm(500_000)));
    }

    #[test]
    fn the_shipped_example_names_every_kind_of_policy() {
        let shipped = include_str!("../../../packaging/daemon.toml");
        let (_, rest) = shipped.split_once(" Kinds: ").expect("a list of kinds");
        let list = rest.split('.').next().unwrap_or_default();
        let kinds: Vec<&str> = list.split(|c: char| !c.is_alphanumeric()).filter(|kind| !kind.is_empty()).collect();
        let missing: Vec<&&str> = Policy::KINDS.iter().filter(|kind| !kinds.contains(kind)).collect();
        assert!(missing.is_empty() && kinds.len() == Policy::KINDS.len(), "{missing:?} of {kinds:?}");
    }

    #[test]
    fn every_configuration_that_the_guide_shows_is_accepted() {
        let guide = include_str!("../../../docs/guide/src/daemon.md");
        let blocks: Vec<&str> =
            guide.split("```toml\n").skip(1).filter_map(|block| block.split("```").next()).collect();
        assert!(blocks.len() > 5, "{} blocks", blocks.len());
        for block in blocks {
            parse(block).unwrap_or_else(|why| panic!("{block}\n{why}"));
        }
    }

    #[test]
    fn the_configuration_in_the_manifest_for_kubernetes_is_accepted() {
        let manifest = include_str!("../../../packaging/kubernetes/qfabric.yaml");
        let (_, rest) = manifest.split_once("  daemon.toml: |\n").expect("a configuration");
        let lines: Vec<&str> = rest.lines().map_while(|line| line.strip_prefix("    ")).collect();
        let config = parse(&lines.join("\n")).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(config.limits.users.get(&10_001), Some(&Share::ONE));
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_known_ones() {
        let refusal = parse("[limits]\ncapacity = 0.8\nmax_aplications = 3\n").unwrap_err();
        for part in ["daemon.toml", "line 3", "max_aplications", "max_applications"] {
            assert!(refusal.contains(part), "{refusal} does not name {part}");
        }
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_line_and_the_accepted_values() {
        for (text, parts) in [
            ("[control]\nbudget = \"2\"\n", ["line 2", "40ms"]),
            ("[api]\nmode = \"rw\"\n", ["line 2", "0660"]),
            ("[limits]\ncapacity = -1\n", ["line 2", "0 and 4096"]),
            ("[control]\nbudget = \"30ms\"\n", ["30 ms", "2 ms"]),
            ("[limits.levels]\n11 = 0.5\n", ["11", "9 (first)"]),
            ("[mechanism]\nslot = \"500us\"\n", ["mechanism.slot is 500", "1ms to 100ms"]),
            ("[mechanism]\nfree = 0.01\n", ["mechanism.free", "0.05 to 0.9"]),
            ("[mechanism]\norder = \"fifo\"\n", ["line 2", "edf"]),
            ("[mechanism]\nidle_latency = \"1s\"\n", ["mechanism.idle_latency", "0ms to 10ms"]),
            ("[energy]\nperiod = \"10ms\"\n", ["energy.period is 10 ms", "1s to 600s"]),
            ("[energy]\nmodel = \"toaster\"\n", ["energy.model: model toaster", "shipped: ipaq"]),
            ("[api]\nmax_connections = 0\n", ["api.max_connections is 0", "1 to 10000"]),
        ] {
            let refusal = parse(text).unwrap_err();
            assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
        }
    }

    #[test]
    fn paths_with_dots_or_control_characters_are_refused() {
        for text in [
            "[api]\ndirectory = '/run/../etc'",
            "[api]\ndirectory = \"/run/q\\u0000fabric\"",
            "[api]\ndirectory = ''",
            "[channels]\ntls = '../tls'",
            "[channels]\naccess = '/etc/qfabric/../access.toml'",
        ] {
            let refusal = parse(text).unwrap_err();
            assert!(refusal.contains("without `..`"), "{text}: {refusal}");
        }
        assert!(parse("[api]\ndirectory = '/run/q..fabric'").is_ok());
    }

    #[test]
    fn a_capacity_beyond_the_machines_cpus_is_refused() {
        let refusal = parse("[limits]\ncapacity = 4096\n").unwrap().check_here().unwrap_err().to_string();
        assert!(
            refusal.contains("limits.capacity is 4096 CPU") && refusal.contains("CPUs of this machine"),
            "{refusal}"
        );
        parse("[limits]\ncapacity = 1\n").unwrap().check_here().unwrap();
        Config::default().check_here().unwrap();
    }

    #[test]
    fn the_supervisors_limits_have_the_maxima_and_the_present_capacity() {
        let config = parse("[limits]\ncapacity = 0.8\ndefault_user = 0.3\n[limits.levels]\n9 = 0.2\n").unwrap();
        let (room, share) = (Share::from_ppm(700_000), Share::from_ppm);
        let limits = supervisor_limits(&config.limits, room);
        assert_eq!((limits.capacity, limits.default_user), (room, Some(share(300_000))));
        assert_eq!(limits.levels, [(9, share(200_000))].into());
    }

    #[test]
    fn an_application_counts_against_the_smallest_maximum_of_its_processs_groups() {
        let limits = parse("[limits.groups]\n44 = 0.5\n45 = 0.2\n46 = 0.9\n").unwrap().limits;
        let counted = |gid, groups: &[u32]| counted_for(&limits, Owner { uid: 7, gid }, groups).gid;
        assert_eq!([counted(44, &[]), counted(44, &[100, 45, 46]), counted(100, &[46, 44])], [44, 45, 44]);
        assert_eq!([counted(100, &[]), counted(100, &[101])], [100, 100]);
    }

    #[test]
    fn by_default_a_user_may_hold_half_a_cpu_and_an_administrator_has_no_maximum() {
        let limits = supervisor_limits(&parse("").unwrap().limits, Share::from_ppm(1_900_000));
        let cap = |uid| limits.user_cap(Owner { uid, gid: uid });
        assert_eq!((cap(54_321), cap(0)), (Some(Share::from_ppm(500_000)), None));
        assert_eq!(cap(rustix::process::geteuid().as_raw()), None);
    }

    #[test]
    fn no_control_budget_means_no_control_reservation() {
        let config = parse("[control]\nbudget = \"0ms\"\n").unwrap();
        assert_eq!(config.control_reservation().map_err(|e| e.to_string()), Ok(None));
    }
}
