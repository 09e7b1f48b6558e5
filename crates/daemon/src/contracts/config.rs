//! The section `[joint]` of the configuration: caps on the joint contracts of each initiating host, and of each user
//! group of it; and who consents for applications.

use std::collections::BTreeMap;

use qfabric_host::manager::contracts::{Cap, InitiatorCaps, Timing};
use qfabric_types::channel::Name;
use qfabric_types::{Amount, Nanos, Resource, Share};
use serde::Deserialize;

use crate::memory::MemoryAmount;
use crate::net::Rate;

/// Most hosts, or groups, with a separate cap.
const MOST_ENTRIES: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JointConfig {
    /// The cap of other hosts without an entry in `hosts`. Default: 1,024 contracts.
    pub default_host: Option<InitiatorCap>,
    /// By initiating host.
    pub hosts: BTreeMap<Name, InitiatorCap>,
    /// By gid on the initiating host, for each host by itself.
    pub groups: BTreeMap<u32, InitiatorCap>,
    /// The answer for an application for which nobody answers.
    pub consent: DefaultConsent,
    /// Longest time that an application has to consent, up to half of the hold of its contract (1.5 s).
    #[serde(deserialize_with = "crate::config::time")]
    pub consent_time: Nanos,
    /// Names of applications, with the uid of the only user who may answer for each.
    pub applications: BTreeMap<Name, u32>,
}

impl Default for JointConfig {
    fn default() -> JointConfig {
        let (default_host, hosts, groups, consent, applications) = Default::default();
        JointConfig { default_host, hosts, groups, consent, consent_time: longest_consent(), applications }
    }
}

/// Half of the time of a hold: the rest is for messages and the confirmation.
fn longest_consent() -> Nanos {
    Timing::consent(Timing::default().hold)
}

/// The answer for an application for which nobody answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultConsent {
    Accept,
    #[default]
    Decline,
}

/// Largest number and amounts of contracts together. A missing key is no bound.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InitiatorCap {
    pub contracts: Option<u32>,
    pub cpu: Option<Share>,
    pub memory: Option<MemoryAmount>,
    /// By link and direction, such as `"eth0 out"`.
    pub network: BTreeMap<LinkKey, Rate>,
}

/// A link and its direction as a key: `eth0 out`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct LinkKey(Resource);

impl TryFrom<String> for LinkKey {
    type Error = String;

    fn try_from(text: String) -> Result<LinkKey, String> {
        let refused =
            |_| format!("{:?} is not a link; use INTERFACE out|in", text.chars().take(40).collect::<String>());
        format!("network {text}").parse().map(LinkKey).map_err(refused)
    }
}

impl InitiatorCap {
    fn cap(&self) -> Cap {
        let cpu = self.cpu.map(|share| (Resource::Cpu, Amount::Cpu(share)));
        let memory = self.memory.map(|amount| (Resource::Memory, Amount::Memory(amount.0)));
        let links = self.network.iter().map(|(key, rate)| (key.0.clone(), Amount::Network(rate.0)));
        let amounts = cpu.into_iter().chain(memory).chain(links);
        Cap {
            contracts: self.contracts,
            amounts: amounts.map(|(resource, amount)| (resource, amount.units())).collect(),
        }
    }
}

impl JointConfig {
    /// The caps of the participant.
    pub(crate) fn caps(&self) -> InitiatorCaps {
        let standard = InitiatorCaps::default();
        InitiatorCaps {
            hosts: self.hosts.iter().map(|(host, cap)| (host.clone(), cap.cap())).collect(),
            default_host: self.default_host.as_ref().map_or(standard.default_host, InitiatorCap::cap),
            groups: self.groups.iter().map(|(gid, cap)| (*gid, cap.cap())).collect(),
        }
    }

    /// The first key whose value is out of range, its value, and the next step.
    pub(crate) fn out_of_range(&self) -> Option<(&'static str, String, &'static str)> {
        if !(Timing::SHORTEST..=longest_consent()).contains(&self.consent_time) {
            return Some(("joint.consent_time", self.consent_time.to_string(), "a time from 10ms to 1500ms"));
        }
        let applications = ("joint.applications", self.applications.len());
        let named = [("joint.hosts", self.hosts.len()), ("joint.groups", self.groups.len()), applications];
        let (key, count) = named.into_iter().find(|(_, count)| *count > MOST_ENTRIES)?;
        Some((key, format!("{count} entries"), "at most 10000, and joint.default_host for the others"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_are_read_with_their_units() {
        let text = "[hosts.alpha]\ncontracts = 100\ncpu = 0.5\nmemory = '64M'\nnetwork = { 'eth0 out' = '10M' }\n\
                    [groups.44]\ncpu = 0.1";
        let caps = toml::from_str::<JointConfig>(text).unwrap().caps();
        let alpha = &caps.hosts[&"alpha".parse().unwrap()];
        let amounts: Vec<(String, u64)> = alpha.amounts.iter().map(|(key, units)| (key.to_string(), *units)).collect();
        let expected = [("cpu", 500_000), ("memory", 64 << 20), ("network eth0 out", 10_000_000)];
        assert_eq!(amounts, expected.map(|(key, units)| (key.to_owned(), units)));
        assert_eq!((alpha.contracts, caps.default_host.contracts, caps.groups.len()), (Some(100), Some(1_024), 1));
    }

    #[test]
    fn the_time_for_consent_is_within_half_a_hold() {
        let read = |text: &str| toml::from_str::<JointConfig>(text).unwrap();
        assert_eq!(read("").consent_time, Nanos::from_millis(1_500));
        assert_eq!(read("consent_time = '500ms'").out_of_range(), None);
        for (text, shown) in [("consent_time = '2s'", "2 s"), ("consent_time = '1ms'", "1 ms")] {
            let (key, value, expected) = read(text).out_of_range().unwrap();
            assert_eq!((key, value.as_str(), expected), ("joint.consent_time", shown, "a time from 10ms to 1500ms"));
        }
    }

    #[test]
    fn a_wrong_key_or_value_is_refused_with_the_accepted_form() {
        for (text, said) in [
            ("[hosts.alpha]\nnetwork = { 'eth0 up' = '10M' }", "INTERFACE out|in"),
            ("[hosts.alpha]\nmemory = '64Q'", "such as 64M"),
            ("[hosts.alpha]\ncpus = 1", "unknown field"),
            ("[groups.video]\ncpu = 1", "groups"),
            ("consent = 'ask'", "`accept` or `decline`"),
            ("[applications]\nplayer = 'root'", "player"),
        ] {
            let refused = toml::from_str::<JointConfig>(text).unwrap_err().to_string();
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }
}
