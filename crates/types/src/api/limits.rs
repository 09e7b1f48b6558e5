//! The administrator's limits of one host: the section `[limits]` of the daemon's configuration, and the bodies of
//! `GET`, `PUT` and `PATCH /v1/limits`. Source: AQuoSA 2009, §4.4 and §5.3.2.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Problem;
use super::memory_limits::{HostMemoryLimits, MemoryLimitsPatch};
use crate::Share;

/// The highest priority level; the lowest is 0.
const HIGHEST_LEVEL: u8 = 9;
/// Largest value of a count, and largest number of users or groups with a separate maximum.
pub(super) const MOST: usize = 10_000;
/// The accepted values of a count, for messages.
const COUNTS: &str = "1 to 10000";

/// The capacity, and maxima per priority level, user and group. Shares in CPUs. A missing key has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HostLimits {
    /// U_lub: the largest share that may be promised in total. Absent: the capacity that the kernel admits.
    pub capacity: Option<Share>,
    /// Most that the applications of a priority level, 0 to 9, may hold together. Guarantees are honoured even
    /// above it.
    pub levels: BTreeMap<u8, Share>,
    /// Most that the applications of a user may hold together, by uid; at most 10000 users.
    pub users: BTreeMap<u32, Share>,
    /// Most that the applications of a group may hold together, by gid. An application counts against the smallest
    /// maximum among all groups of its process, not only its primary group. At most 10000 groups.
    pub groups: BTreeMap<u32, Share>,
    /// Maximum of users without an entry in `users`; absent: no maximum. It does not apply to root and to the user
    /// that the service runs as.
    pub default_user: Option<Share>,
    /// Most applications at the same time.
    pub max_applications: usize,
    /// Most applications of one user at the same time, so that no user takes every place; root is exempt.
    pub max_applications_per_user: usize,
    /// Most threads of one application under reservation; further threads stay under the normal scheduler.
    pub max_threads: usize,
    /// The limits of memory; in the configuration, the section `[memory]`.
    pub memory: HostMemoryLimits,
}

impl Default for HostLimits {
    fn default() -> Self {
        HostLimits {
            capacity: None,
            levels: BTreeMap::new(),
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            // Half a CPU, so that no user can take a whole CPU from the others unless the administrator allows it.
            default_user: Some(Share::from_ppm(500_000)),
            max_applications: 256,
            max_applications_per_user: 64,
            max_threads: 256,
            memory: HostMemoryLimits::default(),
        }
    }
}

/// A limit is outside its range. The limits are unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub struct InvalidLimit {
    /// Dotted name of the key.
    pub key: &'static str,
    pub value: String,
    /// The accepted values.
    pub expected: &'static str,
}

impl InvalidLimit {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let InvalidLimit { key, value, expected } = self;
        Problem::new("invalid_limit", format!("{key} is {value}"), format!("use {expected}"))
    }
}

impl HostLimits {
    /// Checks all ranges.
    ///
    /// # Errors
    /// [`InvalidLimit`] for a level above 9, a count outside 1 to 10000, or more than 10000 users or groups with a
    /// separate maximum.
    pub fn check(&self) -> Result<(), InvalidLimit> {
        if let Some(level) = self.levels.keys().find(|level| **level > HIGHEST_LEVEL) {
            let expected = "levels 0 (last) to 9 (first)";
            return Err(InvalidLimit { key: "limits.levels", value: level.to_string(), expected });
        }
        let named = [("limits.users", self.users.len()), ("limits.groups", self.groups.len())];
        if let Some((key, count)) = named.into_iter().find(|(_, count)| *count > MOST) {
            let expected = "at most 10000: remove some (null in a PATCH), or limit all others by limits.default_user";
            return Err(InvalidLimit { key, value: format!("{count} entries"), expected });
        }
        let counts = [
            ("limits.max_applications", self.max_applications),
            ("limits.max_applications_per_user", self.max_applications_per_user),
            ("limits.max_threads", self.max_threads),
        ];
        self.memory.check()?;
        match counts.into_iter().find(|(_, count)| !(1..=MOST).contains(count)) {
            Some((key, count)) => Err(InvalidLimit { key, value: count.to_string(), expected: COUNTS }),
            None => Ok(()),
        }
    }
}

/// A change of some limits: the body of `PATCH /v1/limits`. A missing key keeps its value; null removes a limit.
///
/// A JSON merge patch (RFC 7396) of [`HostLimits`] in the form that `GET` returns, with one departure: a key that
/// is set to null stays as null («no limit»), but the RFC would remove it. So `"default_user": null` means no
/// maximum, not the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LimitsPatch {
    /// null: the capacity that the kernel admits.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Share>))]
    pub capacity: Change<Share>,
    /// Merged by level: a missing level keeps its maximum, null removes it. null for the whole map removes all.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::openapi::changed_shares, required = false))]
    pub levels: Change<BTreeMap<u8, Option<Share>>>,
    /// Merged by uid, like `levels`.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::openapi::changed_shares, required = false))]
    pub users: Change<BTreeMap<u32, Option<Share>>>,
    /// Merged by gid, like `levels`.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::openapi::changed_shares, required = false))]
    pub groups: Change<BTreeMap<u32, Option<Share>>>,
    /// null: no maximum for users without an entry in `users`.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Share>))]
    pub default_user: Change<Share>,
    /// 1 to 10000; null is refused.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = usize, required = false))]
    pub max_applications: Change<usize>,
    /// 1 to 10000; null is refused.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = usize, required = false))]
    pub max_applications_per_user: Change<usize>,
    /// 1 to 10000; null is refused.
    #[serde(skip_serializing_if = "Change::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = usize, required = false))]
    pub max_threads: Change<usize>,
    /// Merged by key: a missing key keeps its value, null restores its default.
    #[serde(skip_serializing_if = "MemoryLimitsPatch::is_empty")]
    pub memory: MemoryLimitsPatch,
}

/// The value of one key in a merge patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// The key is missing.
    #[default]
    Keep,
    /// null.
    Remove,
    /// A value.
    Set(T),
}

impl LimitsPatch {
    /// Applies this change to `limits` and returns the new limits.
    ///
    /// # Errors
    /// [`InvalidLimit`] if a count is removed, or if [`HostLimits::check`] refuses the result.
    pub fn apply(&self, limits: &HostLimits) -> Result<HostLimits, InvalidLimit> {
        let mut new = limits.clone();
        self.capacity.replace(&mut new.capacity);
        self.levels.merge(&mut new.levels);
        self.users.merge(&mut new.users);
        self.groups.merge(&mut new.groups);
        self.default_user.replace(&mut new.default_user);
        self.max_applications.count("limits.max_applications", &mut new.max_applications)?;
        self.max_applications_per_user.count("limits.max_applications_per_user", &mut new.max_applications_per_user)?;
        self.max_threads.count("limits.max_threads", &mut new.max_threads)?;
        self.memory.apply(&mut new.memory);
        new.check()?;
        Ok(new)
    }
}

impl<T> Change<T> {
    pub(super) fn is_keep(&self) -> bool {
        matches!(self, Change::Keep)
    }
}

impl<T> From<Option<T>> for Change<T> {
    /// `None` removes.
    fn from(value: Option<T>) -> Self {
        value.map_or(Change::Remove, Change::Set)
    }
}

impl<T: Copy> Change<T> {
    pub(super) fn replace(self, limit: &mut Option<T>) {
        match self {
            Change::Keep => {}
            Change::Remove => *limit = None,
            Change::Set(value) => *limit = Some(value),
        }
    }
}

impl<K: Ord + Copy, V: Copy> Change<BTreeMap<K, Option<V>>> {
    pub(super) fn merge(&self, limits: &mut BTreeMap<K, V>) {
        match self {
            Change::Keep => {}
            Change::Remove => limits.clear(),
            Change::Set(changes) => {
                limits.retain(|key, _| !matches!(changes.get(key), Some(None)));
                limits.extend(changes.iter().filter_map(|(key, most)| Some((*key, (*most)?))));
            }
        }
    }
}

impl Change<usize> {
    fn count(self, key: &'static str, count: &mut usize) -> Result<(), InvalidLimit> {
        match self {
            Change::Keep => {}
            Change::Remove => return Err(InvalidLimit { key, value: "null".into(), expected: COUNTS }),
            Change::Set(value) => *count = value,
        }
        Ok(())
    }
}

impl<T: Serialize> Serialize for Change<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // The struct skips keys with `Keep`.
            Change::Keep | Change::Remove => serializer.serialize_none(),
            Change::Set(value) => serializer.serialize_some(value),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Change::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_limits_parse_to_themselves() {
        let mut limits = HostLimits { capacity: Some(Share::from_ppm(1_700_000)), ..HostLimits::default() };
        limits.users.insert(1_000, Share::from_ppm(500_000));
        limits.levels.insert(9, Share::from_ppm(250_000));
        let text = serde_json::to_string(&limits).unwrap();
        assert!(text.contains(r#""users":{"1000":0.5}"#), "{text}");
        assert_eq!(serde_json::from_str::<HostLimits>(&text).unwrap(), limits);
        assert!(serde_json::from_str::<HostLimits>(r#"{"user":{"1000":0.5}}"#).is_err(), "a misspelt key is refused");
    }

    #[test]
    fn a_limit_out_of_range_is_named_with_the_accepted_values() {
        let mut limits = HostLimits::default();
        assert_eq!(limits.check(), Ok(()));
        limits.max_threads = 0;
        assert_eq!(limits.check().unwrap_err().to_string(), "limits.max_threads is 0; use 1 to 10000");
        limits.levels.insert(10, Share::ONE);
        let refusal = limits.check().unwrap_err().to_string();
        assert!(refusal.contains("limits.levels is 10") && refusal.contains("0 (last) to 9 (first)"), "{refusal}");
    }

    fn patched(patch: &str, limits: &HostLimits) -> Result<HostLimits, String> {
        let patch: LimitsPatch = serde_json::from_str(patch).map_err(|why| why.to_string())?;
        let sent = serde_json::to_string(&patch).unwrap();
        assert_eq!(serde_json::from_str::<LimitsPatch>(&sent).unwrap(), patch, "{sent}");
        patch.apply(limits).map_err(|why| why.to_string())
    }

    #[test]
    fn a_patch_changes_the_keys_it_names_and_keeps_the_rest() {
        let cpus = Share::from_f64;
        let mut limits = HostLimits { capacity: Some(cpus(1.5)), ..HostLimits::default() };
        limits.users = [(7, cpus(0.1)), (8, cpus(0.2))].into();
        limits.groups = [(7, cpus(0.3))].into();
        let patch = r#"{"users":{"7":null,"9":0.4,"10":null},"levels":{"9":0.5},"max_threads":9}"#;
        let users = [(8, cpus(0.2)), (9, cpus(0.4))].into();
        let expected = HostLimits { users, levels: [(9, cpus(0.5))].into(), max_threads: 9, ..limits.clone() };
        assert_eq!(patched(patch, &limits), Ok(expected));
        assert_eq!(patched("{}", &limits), Ok(limits.clone()));
        assert_eq!(serde_json::to_string(&LimitsPatch::default()).unwrap(), "{}");

        let none = r#"{"capacity":null,"default_user":null,"users":null,"groups":{}}"#;
        let expected = HostLimits { capacity: None, default_user: None, users: BTreeMap::new(), ..limits.clone() };
        assert_eq!(patched(none, &limits), Ok(expected));
    }

    #[test]
    fn an_invalid_patch_is_refused_with_the_value_and_the_limit() {
        for (patch, [value, limit]) in [
            (r#"{"max_threads":null}"#, ["limits.max_threads is null", "1 to 10000"]),
            (r#"{"capacity":1,"max_applications":0}"#, ["limits.max_applications is 0", "1 to 10000"]),
            (r#"{"levels":{"10":0.5}}"#, ["limits.levels is 10", "0 (last) to 9 (first)"]),
            (r#"{"users":{"7":-1}}"#, ["share -1", "between 0 and 4096"]),
            (r#"{"user":{"7":1}}"#, ["`user`", "`users`"]),
        ] {
            let why = patched(patch, &HostLimits::default()).unwrap_err();
            assert!(why.contains(value) && why.contains(limit), "{patch} → {why}");
        }
        for (key, count) in [("users", 10_001), ("groups", 10_001)] {
            let shares: Vec<_> = (0..count).map(|id| format!(r#""{id}":0.1"#)).collect();
            let why = patched(&format!(r#"{{"{key}":{{{}}}}}"#, shares.join(",")), &HostLimits::default()).unwrap_err();
            let named = why.contains(&format!("limits.{key} is 10001 entries")) && why.contains("at most 10000");
            assert!(named && why.contains("limits.default_user"), "{why}");
        }
        // A level that does not exist can be removed, even if it is out of range.
        assert_eq!(patched(r#"{"levels":{"10":null}}"#, &HostLimits::default()), Ok(HostLimits::default()));
    }
}
