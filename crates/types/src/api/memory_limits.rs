//! The administrator's limits of memory: the section `[memory]` of the daemon's configuration, and the key `memory` in
//! the bodies of `/v1/limits`. Amounts in bytes. Source: QualMan §4.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::limits::{Change, InvalidLimit, MOST};
use crate::Bytes;

/// The memory that may be promised, and the maxima of users and groups. A missing key has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HostMemoryLimits {
    /// Mem_glob_resv: the largest amount that may be promised in total; 0 switches reserves off. Absent: 1/16 of the
    /// memory of the host.
    pub global_reserve: Option<Bytes>,
    /// Most that the reserves of a user may hold together, by uid; at most 10000 users.
    pub users: BTreeMap<u32, Bytes>,
    /// Most that the reserves of a group may hold together, by gid. Of all groups of a process, the one with the
    /// smallest maximum counts. At most 10000 groups.
    pub groups: BTreeMap<u32, Bytes>,
    /// Maximum of users without an entry in `users`; it does not apply to root and to the user that the service runs
    /// as. Absent: half of the global reserve.
    pub default_user: Option<Bytes>,
}

impl HostMemoryLimits {
    /// Checks all ranges that do not depend on the host.
    ///
    /// # Errors
    /// [`InvalidLimit`] for more than 10000 users or groups with a separate maximum.
    pub fn check(&self) -> Result<(), InvalidLimit> {
        let named = [("memory.users", self.users.len()), ("memory.groups", self.groups.len())];
        match named.into_iter().find(|(_, count)| *count > MOST) {
            Some((key, count)) => {
                let expected = "at most 10000: remove some, or limit all others by memory.default_user";
                Err(InvalidLimit { key, value: format!("{count} entries"), expected })
            }
            None => Ok(()),
        }
    }
}

/// A change of some limits of memory: a missing key keeps its value; null restores its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct MemoryLimitsPatch {
    /// In bytes. null: 1/16 of the memory of the host.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Bytes>))]
    pub global_reserve: Change<Bytes>,
    /// Merged by uid: a missing uid keeps its maximum, null removes it. null for the whole map removes all.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::openapi::changed_amounts, required = false))]
    pub users: Change<BTreeMap<u32, Option<Bytes>>>,
    /// Merged by gid, like `users`.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::openapi::changed_amounts, required = false))]
    pub groups: Change<BTreeMap<u32, Option<Bytes>>>,
    /// In bytes. null: half of the global reserve.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Bytes>))]
    pub default_user: Change<Bytes>,
}

impl MemoryLimitsPatch {
    /// True if no limit is named.
    pub fn is_empty(&self) -> bool {
        *self == MemoryLimitsPatch::default()
    }

    /// Applies this change to `limits`.
    pub(super) fn apply(&self, limits: &mut HostMemoryLimits) {
        self.global_reserve.replace(&mut limits.global_reserve);
        self.users.merge(&mut limits.users);
        self.groups.merge(&mut limits.groups);
        self.default_user.replace(&mut limits.default_user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_changes_the_amounts_it_names_and_keeps_the_rest() {
        let mut limits =
            HostMemoryLimits { users: [(7, Bytes::new(1)), (8, Bytes::new(2))].into(), ..Default::default() };
        let text = r#"{"global_reserve":1048576,"users":{"7":null,"9":4096}}"#;
        let patch: MemoryLimitsPatch = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&patch).unwrap(), text);
        patch.apply(&mut limits);
        assert_eq!(limits.global_reserve, Some(Bytes::from_mib(1)));
        assert_eq!(limits.users, [(8, Bytes::new(2)), (9, Bytes::new(4096))].into());
        serde_json::from_str::<MemoryLimitsPatch>(r#"{"global_reserve":null,"users":null}"#)
            .unwrap()
            .apply(&mut limits);
        assert_eq!(limits, HostMemoryLimits::default());
        assert!(MemoryLimitsPatch::default().is_empty() && !patch.is_empty());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [r#"{"global_reserve":-1}"#, r#"{"reserve":1}"#, r#"{"users":{"x":1}}"#, r#"{"users":{"7":"1M"}}"#]
        {
            assert!(serde_json::from_str::<MemoryLimitsPatch>(text).is_err(), "{text}");
        }
        let users = (0..10_001).map(|uid| (uid, Bytes::ZERO)).collect();
        let refusal = HostMemoryLimits { users, ..Default::default() }.check().unwrap_err().to_string();
        assert!(
            refusal.contains("memory.users is 10001 entries") && refusal.contains("memory.default_user"),
            "{refusal}"
        );
    }
}
