//! The section `[memory]` of the daemon's configuration.

use std::collections::BTreeMap;

use qfabric_broker::MemoryLimits;
use qfabric_types::api::{HostMemoryLimits, InvalidLimit};
use qfabric_types::{Bytes, InvalidQuantity};
use serde::Deserialize;

/// The memory that may be promised, and the maxima of users and groups.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// Mem_glob_resv: the largest amount that may be promised in total; 0 switches reserves off. Default: 1/16 of the
    /// memory of the host.
    pub global_reserve: Option<MemoryAmount>,
    /// Most that the reserves of a user may hold together, by uid.
    pub users: BTreeMap<u32, MemoryAmount>,
    /// Most that the reserves of a group may hold together, by gid. Of all groups of a process, the one with the
    /// smallest maximum counts.
    pub groups: BTreeMap<u32, MemoryAmount>,
    /// Maximum of users without an entry in `users`; it does not apply to root and to the user that the service runs
    /// as. Default: half of `global_reserve`.
    pub default_user: Option<MemoryAmount>,
}

/// An amount of memory in a configuration file: a text with a unit, such as `"256M"`, or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct MemoryAmount(pub Bytes);

#[derive(Deserialize)]
#[serde(untagged, expecting = "an amount of memory, such as \"256M\" or a number of bytes")]
enum Written {
    Number(u64),
    Text(String),
}

impl TryFrom<Written> for MemoryAmount {
    type Error = InvalidQuantity;

    fn try_from(written: Written) -> Result<Self, InvalidQuantity> {
        let text = match written {
            Written::Number(bytes) => bytes.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map(MemoryAmount)
    }
}

/// The part of the host's memory that may be promised by default, as a divisor: small, so that ordinary programs and
/// the kernel's caches keep nearly everything.
const DEFAULT_PART: u64 = 16;
/// Largest part of the host's memory that may be promised, in hundredths.
const MOST_PERCENT: u64 = 80;

impl MemoryConfig {
    /// The section in the form of the API.
    pub(crate) fn host_limits(&self) -> HostMemoryLimits {
        let amounts = |of: &BTreeMap<u32, MemoryAmount>| of.iter().map(|(id, amount)| (*id, amount.0)).collect();
        HostMemoryLimits {
            global_reserve: self.global_reserve.map(|amount| amount.0),
            users: amounts(&self.users),
            groups: amounts(&self.groups),
            default_user: self.default_user.map(|amount| amount.0),
        }
    }
}

/// Checks that a host with `total` bytes of memory can give the global reserve.
pub(crate) fn check_reserve(limits: &HostMemoryLimits, total: Bytes) -> Result<(), InvalidLimit> {
    let asked = limits.global_reserve.unwrap_or_default();
    if asked.get() <= total.get() / 100 * MOST_PERCENT {
        return Ok(());
    }
    let (key, expected) = ("memory.global_reserve", "at most 80 % of the memory of this host");
    Err(InvalidLimit { key, value: format!("{asked} on a host with {total}"), expected })
}

/// The limits of the broker on a host with `total` bytes of memory.
pub(super) fn broker_limits(limits: &HostMemoryLimits, total: Bytes) -> MemoryLimits {
    let HostMemoryLimits { global_reserve, users, groups, default_user } = limits.clone();
    let global_reserve = global_reserve.unwrap_or(Bytes::new(total.get() / DEFAULT_PART));
    MemoryLimits {
        global_reserve,
        users,
        groups,
        default_user: Some(default_user.unwrap_or(Bytes::new(global_reserve.get() / 2))),
        exempt: [0, rustix::process::geteuid().as_raw()].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_a_unit_or_are_bytes() {
        let text = "global_reserve = \"256M\"\n[users]\n1000 = 65536\n[groups]\n44 = \"1.5G\"\n";
        let config: MemoryConfig = toml::from_str(text).unwrap();
        let limits = broker_limits(&config.host_limits(), Bytes::from_mib(4096));
        assert_eq!((limits.global_reserve, limits.default_user), (Bytes::from_mib(256), Some(Bytes::from_mib(128))));
        assert_eq!((limits.users[&1000], limits.groups[&44]), (Bytes::new(65_536), Bytes::from_mib(1536)));
    }

    #[test]
    fn nonsense_is_refused_with_the_accepted_values() {
        for (text, part) in [
            ("global_reserve = \"lots\"", "such as 64M"),
            ("global_reserve = -1", "number of bytes"),
            ("reserve = 1", "global_reserve"),
        ] {
            let refusal = toml::from_str::<MemoryConfig>(text).unwrap_err().to_string();
            assert!(refusal.contains(part), "{refusal}");
        }
        let all = HostMemoryLimits { global_reserve: Some(Bytes::MAX), ..HostMemoryLimits::default() };
        let refusal = check_reserve(&all, Bytes::from_mib(4096)).unwrap_err().to_string();
        assert!(refusal.contains("1024 TiB on a host with 4 GiB; use at most 80 %"), "{refusal}");
    }

    #[test]
    fn by_default_a_sixteenth_of_the_memory_may_be_promised() {
        let limits = broker_limits(&MemoryConfig::default().host_limits(), Bytes::from_mib(4096));
        assert_eq!((limits.global_reserve, limits.default_user), (Bytes::from_mib(256), Some(Bytes::from_mib(128))));
    }
}
