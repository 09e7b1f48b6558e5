//! The section `[ecalls]` of the configuration: limits, and the services that users may use.
//!
//! Root may use everything. Other users may subscribe to services whose events belong to a process, for their own
//! processes; to services of their own processes and services registered as open; and to services granted by name.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_types::api::ecalls::{Author, Origin};
use qfabric_types::pattern::matches;
use qfabric_types::{Owner, Share};
use serde::Deserialize;

const SCHEDULER: &str = "ecalls.max_instructions_scheduler";

/// Limits and grants of ECalls.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EcallsConfig {
    /// Largest number of connections to `ecalls.sock` at the same time.
    pub max_leases: usize,
    /// Largest number of connections of one user at the same time (root excepted).
    pub max_leases_per_user: usize,
    /// Largest number of services that processes have registered.
    pub max_services: usize,
    /// Largest number of services that processes of one user have registered.
    pub max_services_per_user: usize,
    /// Largest number of subscriptions.
    pub max_subscriptions: usize,
    /// Largest number of subscriptions of one user.
    pub max_subscriptions_per_user: usize,
    /// Largest number of named handlers of one user.
    pub max_handlers_per_user: usize,
    /// Limit of shared memory and queues of all subscriptions, in bytes.
    pub max_memory: u64,
    /// Limit of shared memory and queues of one user's subscriptions, in bytes.
    pub max_memory_per_user: u64,
    /// Largest number of instructions that all handlers of a user together may take for one event, at worst;
    /// each takes 0.2 to 1.5 ns (design page 0008).
    pub max_instructions: u32,
    /// The same limit at the kernel's scheduler hooks (`sched.*`), where the CPU does nothing else in the meantime.
    pub max_instructions_scheduler: u32,
    /// Largest share of one CPU that all handlers of a user together may take, a second's share at once. Above it
    /// the user's handlers in the kernel are removed, and new ones are refused until the share covers the use. Handlers
    /// in the daemon pause before that.
    pub max_cpu_per_user: Share,
    /// Events that may wait for the dispatcher; further ones are dropped and counted.
    pub queue: usize,
    /// Events of one subscription that may wait.
    pub queue_per_subscription: usize,
    /// Largest number of handler threads of one user; there are as many as there is work for.
    pub handler_threads: usize,
    /// A handler with more faults within a second is removed.
    pub faults_per_second: u32,
    /// Services that users (by uid) may use beyond their own processes: names, prefixes such as `sched.*`, or `*`.
    pub users: BTreeMap<u32, Vec<String>>,
    /// The same for groups (by gid).
    pub groups: BTreeMap<u32, Vec<String>>,
    /// Largest number of handlers that one user of another host has here.
    pub max_subscriptions_per_author: usize,
    /// Users of other hosts who may install handlers here: tables `[[ecalls.host]]`; without them, nobody.
    #[serde(rename = "host")]
    pub hosts: Vec<HostRule>,
}

/// Users of other hosts who may install handlers at services of this host's kernel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRule {
    /// Names of hosts; a name that ends in `*` stands for all names with this prefix.
    pub hosts: Vec<String>,
    /// Their users, by the numbers that they have there. Without this key: all users of these hosts.
    pub users: Option<BTreeSet<u32>>,
    /// Services, as in [`EcallsConfig::users`].
    pub services: Vec<String>,
}

impl Default for EcallsConfig {
    fn default() -> Self {
        EcallsConfig {
            max_leases: 256,
            max_leases_per_user: 64,
            max_services: 256,
            max_services_per_user: 32,
            max_subscriptions: 512,
            max_subscriptions_per_user: 64,
            max_handlers_per_user: 64,
            max_memory: 256 << 20,
            max_memory_per_user: 64 << 20,
            max_instructions: 200_000,
            max_instructions_scheduler: 10_000,
            max_cpu_per_user: Share::from_ppm(100_000),
            queue: 8_192,
            queue_per_subscription: 1_024,
            handler_threads: 4,
            faults_per_second: 16,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            max_subscriptions_per_author: 16,
            hosts: Vec::new(),
        }
    }
}

impl EcallsConfig {
    /// The first key out of range: its name, its value, and the accepted values.
    pub fn out_of_range(&self) -> Option<(&'static str, String, &'static str)> {
        const MEMORY: u64 = 1 << 40;
        let memory = [("ecalls.max_memory", self.max_memory), ("ecalls.max_memory_per_user", self.max_memory_per_user)];
        if let Some((key, value)) = memory.into_iter().find(|(_, value)| *value > MEMORY) {
            return Some((key, value.to_string(), "0 to 1099511627776 bytes (1 TiB)"));
        }
        let (faults, per_author) = (self.faults_per_second as usize, self.max_subscriptions_per_author);
        let sizes = [
            ("ecalls.max_leases", self.max_leases, 1..=10_000, "1 to 10000"),
            ("ecalls.max_leases_per_user", self.max_leases_per_user, 0..=10_000, "0 to 10000"),
            ("ecalls.max_services", self.max_services, 0..=10_000, "0 to 10000"),
            ("ecalls.max_services_per_user", self.max_services_per_user, 0..=10_000, "0 to 10000"),
            ("ecalls.max_subscriptions", self.max_subscriptions, 0..=10_000, "0 to 10000"),
            ("ecalls.max_subscriptions_per_user", self.max_subscriptions_per_user, 0..=10_000, "0 to 10000"),
            ("ecalls.max_subscriptions_per_author", per_author, 0..=10_000, "0 to 10000"),
            ("ecalls.faults_per_second", faults, 0..=1_000_000, "0 to 1000000"),
            ("ecalls.max_handlers_per_user", self.max_handlers_per_user, 0..=10_000, "0 to 10000"),
            ("ecalls.queue", self.queue, 1..=1_000_000, "1 to 1000000"),
            ("ecalls.queue_per_subscription", self.queue_per_subscription, 1..=1_000_000, "1 to 1000000"),
            ("ecalls.handler_threads", self.handler_threads, 1..=256, "1 to 256"),
            ("ecalls.max_instructions", self.max_instructions as usize, 1..=100_000_000, "1 to 100000000"),
            (SCHEDULER, self.max_instructions_scheduler as usize, 1..=100_000_000, "1 to 100000000"),
        ];
        let found = sizes.into_iter().find(|(_, value, range, _)| !range.contains(value));
        if let Some((key, value, _, expected)) = found {
            return Some((key, value.to_string(), expected));
        }
        let nothing = self.max_cpu_per_user == Share::ZERO;
        nothing.then(|| ("ecalls.max_cpu_per_user", "0".to_owned(), "a share of one CPU above 0, such as 0.1"))
    }

    /// `new`, with the keys of this configuration that need a restart: they size queues and pools.
    pub(super) fn reloaded(&self, new: &EcallsConfig) -> EcallsConfig {
        EcallsConfig {
            queue: self.queue,
            queue_per_subscription: self.queue_per_subscription,
            handler_threads: self.handler_threads,
            max_subscriptions: self.max_subscriptions,
            ..new.clone()
        }
    }

    /// Largest number of instructions that a user's handlers may take for one event of this service, and the
    /// configuration key of the limit.
    pub fn instructions_at(&self, service: &str, origin: Origin) -> (u32, &'static str) {
        match origin == Origin::Kernel && service.starts_with("sched.") {
            true => (self.max_instructions_scheduler, SCHEDULER),
            false => (self.max_instructions, "ecalls.max_instructions"),
        }
    }

    /// Whether the configuration grants all events of a service to `owner`.
    pub fn grants(&self, owner: Owner, service: &str) -> bool {
        let lists = [self.users.get(&owner.uid), self.groups.get(&owner.gid)];
        owner.uid == 0 || lists.into_iter().flatten().flatten().any(|pattern| matches(pattern, service))
    }
}

impl EcallsConfig {
    /// Whether a rule lets the user of another host install handlers at the service.
    pub(crate) fn lets_in(&self, author: &Author, service: &str) -> bool {
        let any = |patterns: &[String], name: &str| patterns.iter().any(|pattern| matches(pattern, name));
        self.hosts.iter().any(|rule| {
            let is_named = rule.users.as_ref().is_none_or(|users| users.contains(&author.uid));
            is_named && any(&rule.hosts, author.host.as_str()) && any(&rule.services, service)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_of_another_host_may_install_without_a_rule() {
        let author = |host: &str, uid| Author { host: host.parse().unwrap(), uid };
        let mut config = EcallsConfig::default();
        assert!(!config.lets_in(&author("h0", 0), "timer"));
        let text = "[[host]]\nhosts = ['h*']\nusers = [1000]\nservices = ['sched.*']\n\
                    [[host]]\nhosts = ['lab']\nservices = ['timer']";
        config.hosts = toml::from_str::<EcallsConfig>(text).unwrap().hosts;
        assert!(config.lets_in(&author("h7", 1000), "sched.wakeup") && config.lets_in(&author("lab", 5), "timer"));
        assert!(!config.lets_in(&author("h7", 0), "sched.wakeup"), "root of another host is a user like others");
        assert!(!config.lets_in(&author("h7", 1000), "timer") && !config.lets_in(&author("lab2", 5), "timer"));
    }

    const USER: Owner = Owner { uid: 1000, gid: 100 };

    #[test]
    fn root_may_use_every_service_and_others_those_granted() {
        let mut config = EcallsConfig::default();
        assert!(config.grants(Owner { uid: 0, gid: 0 }, "net.rx") && !config.grants(USER, "net.rx"));
        config.users.insert(1000, vec!["net.rx".into(), "sched.*".into()]);
        config.groups.insert(100, vec!["timer".into()]);
        for (service, granted) in
            [("net.rx", true), ("net.rxx", false), ("sched.switch", true), ("timer", true), ("proc.exec", false)]
        {
            assert_eq!(config.grants(USER, service), granted, "{service}");
        }
        config.users.insert(1000, vec!["*".into()]);
        assert!(config.grants(USER, "proc.exec"));
    }

    #[test]
    fn values_out_of_range_are_named() {
        let config = EcallsConfig { handler_threads: 0, ..EcallsConfig::default() };
        assert_eq!(config.out_of_range().unwrap().0, "ecalls.handler_threads");
        let config = EcallsConfig { max_cpu_per_user: Share::ZERO, ..EcallsConfig::default() };
        assert_eq!(config.out_of_range().unwrap().0, "ecalls.max_cpu_per_user");
        assert_eq!(EcallsConfig::default().out_of_range(), None);
        for key in [
            "max_leases_per_user",
            "max_services_per_user",
            "max_subscriptions_per_user",
            "max_subscriptions_per_author",
            "faults_per_second",
            "max_memory",
            "max_memory_per_user",
        ] {
            let value = if key.starts_with("max_memory") { 1 << 50 } else { 4_000_000_000_u64 };
            let config: EcallsConfig = toml::from_str(&format!("{key} = {value}")).unwrap();
            assert_eq!(config.out_of_range().map(|found| found.0), Some(&*format!("ecalls.{key}")));
        }
    }

    #[test]
    fn a_reload_changes_limits_and_grants_and_leaves_the_sizes_of_queues_and_pools() {
        let running = EcallsConfig::default();
        let mut new = EcallsConfig { max_services: 7, faults_per_second: 3, ..EcallsConfig::default() };
        new.users.insert(1000, vec!["net.rx".into()]);
        let in_force = new.clone();
        (new.queue, new.queue_per_subscription, new.handler_threads, new.max_subscriptions) = (1, 1, 1, 1);
        assert_eq!(running.reloaded(&new), in_force);
    }
}
