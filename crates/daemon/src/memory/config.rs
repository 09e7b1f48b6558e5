//! The section `[memory]` of the daemon's configuration.

use std::collections::BTreeMap;

use qfabric_broker::MemoryLimits;
use qfabric_linux::memory;
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
/// Most users, or groups, with a separate maximum.
const MOST_ENTRIES: usize = 10_000;

/// A key, its value and the accepted values.
type OutOfRange = (&'static str, String, &'static str);

impl MemoryConfig {
    /// The first value that is out of range on any host.
    pub(crate) fn out_of_range(&self) -> Option<OutOfRange> {
        let named = [("memory.users", self.users.len()), ("memory.groups", self.groups.len())];
        let (key, count) = named.into_iter().find(|(_, count)| *count > MOST_ENTRIES)?;
        Some((key, format!("{count} entries"), "at most 10000, and memory.default_user for the others"))
    }

    /// A global reserve that this host cannot give.
    pub(crate) fn out_of_range_here(&self) -> Option<OutOfRange> {
        let (asked, total) = (self.global_reserve?.0, memory::total()?);
        let value = || format!("{asked} on a host with {total}");
        let most = total.get() / 100 * MOST_PERCENT;
        (asked.get() > most).then(|| ("memory.global_reserve", value(), "at most 80 % of the memory of this host"))
    }

    /// The limits of the broker on this host.
    pub(crate) fn limits(&self) -> MemoryLimits {
        let default = || Bytes::new(memory::total().unwrap_or_default().get() / DEFAULT_PART);
        let global_reserve = self.global_reserve.map_or_else(default, |amount| amount.0);
        let amounts = |of: &BTreeMap<u32, MemoryAmount>| of.iter().map(|(id, amount)| (*id, amount.0)).collect();
        MemoryLimits {
            global_reserve,
            users: amounts(&self.users),
            groups: amounts(&self.groups),
            default_user: Some(self.default_user.map_or(Bytes::new(global_reserve.get() / 2), |amount| amount.0)),
            exempt: [0, rustix::process::geteuid().as_raw()].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_a_unit_or_are_bytes() {
        let text = "global_reserve = \"256M\"\n[users]\n1000 = 65536\n[groups]\n44 = \"1.5G\"\n";
        let config: MemoryConfig = toml::from_str(text).unwrap();
        let limits = config.limits();
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
        let all = MemoryConfig { global_reserve: Some(MemoryAmount(Bytes::MAX)), ..MemoryConfig::default() };
        assert!(all.out_of_range_here().is_some_and(|(_, value, _)| value.contains("1024 TiB")));
    }

    #[test]
    fn by_default_a_sixteenth_of_the_memory_may_be_promised() {
        let total = memory::total().unwrap().get();
        assert_eq!(MemoryConfig::default().limits().global_reserve.get(), total / 16);
    }
}
