//! Who may install what where, and how much of it: the section `[ecalls]` of the configuration.
//!
//! Root may everything. Everybody else may subscribe to services whose events concern one process, for processes of
//! its own; to services of its own processes and to those registered as open; and to what it is granted by name.

use std::collections::BTreeMap;

use qfabric_types::api::ecalls::Origin;
use qfabric_types::pattern::matches;
use qfabric_types::{Owner, Share};
use serde::Deserialize;

const SCHEDULER: &str = "ecalls.max_instructions_scheduler";

/// ECalls: limits and grants.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EcallsConfig {
    /// Connections to `ecalls.sock` at the same time; of these, at most so many of one user (root excepted).
    pub max_leases: usize,
    /// See [`EcallsConfig::max_leases`].
    pub max_leases_per_user: usize,
    /// Services registered by processes; of these, at most so many of one user.
    pub max_services: usize,
    /// See [`EcallsConfig::max_services`].
    pub max_services_per_user: usize,
    /// Subscriptions; of these, at most so many of one user.
    pub max_subscriptions: usize,
    /// See [`EcallsConfig::max_subscriptions`].
    pub max_subscriptions_per_user: usize,
    /// Named handlers of one user.
    pub max_handlers_per_user: usize,
    /// Shared memory of all subscriptions, in bytes; of this, at most so much of one user.
    pub max_memory: u64,
    /// See [`EcallsConfig::max_memory`].
    pub max_memory_per_user: u64,
    /// Instructions that a user's handlers may take for one event, together and at worst: about as many nanoseconds.
    pub max_instructions: u32,
    /// The same at the kernel's hooks of the scheduler (`sched.*`), where a CPU does nothing else meanwhile.
    pub max_instructions_scheduler: u32,
    /// Of one CPU, what a user's handlers may take together, measured over a second; above it the one that took most is taken
    /// out.
    pub max_cpu_per_user: Share,
    /// Events that wait for the dispatcher; the next is dropped and counted.
    pub queue: usize,
    /// Of these, at most so many of one subscription.
    pub queue_per_subscription: usize,
    /// Handler threads at most; there are as many as there is work for.
    pub handler_threads: usize,
    /// A handler that faults more often than this within a second is taken out.
    pub faults_per_second: u32,
    /// Services that users (by uid) may use beyond their own processes: names, `sched.*`, or `*`.
    pub users: BTreeMap<u32, Vec<String>>,
    /// The same for groups (by gid).
    pub groups: BTreeMap<u32, Vec<String>>,
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
        }
    }
}

impl EcallsConfig {
    /// The first key that is out of range: name, value, what would be accepted.
    pub fn out_of_range(&self) -> Option<(&'static str, String, &'static str)> {
        let sizes = [
            ("ecalls.max_leases", self.max_leases, 1..=10_000, "1 to 10000"),
            ("ecalls.max_services", self.max_services, 0..=10_000, "0 to 10000"),
            ("ecalls.max_subscriptions", self.max_subscriptions, 0..=10_000, "0 to 10000"),
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

    /// Instructions that a user's handlers may take for one event of this service, and the key that says so.
    pub fn instructions_at(&self, service: &str, origin: Origin) -> (u32, &'static str) {
        match origin == Origin::Kernel && service.starts_with("sched.") {
            true => (self.max_instructions_scheduler, SCHEDULER),
            false => (self.max_instructions, "ecalls.max_instructions"),
        }
    }

    /// Whether the configuration grants `owner` the whole of a service.
    pub fn grants(&self, owner: Owner, service: &str) -> bool {
        let lists = [self.users.get(&owner.uid), self.groups.get(&owner.gid)];
        owner.uid == 0 || lists.into_iter().flatten().flatten().any(|pattern| matches(pattern, service))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Owner = Owner { uid: 1000, gid: 100 };

    #[test]
    fn root_may_all_and_others_what_they_are_granted() {
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
    }
}
