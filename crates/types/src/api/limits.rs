//! What the administrator allows on one host: the section `[limits]` of the daemon's configuration, and the body of
//! `GET` and `PUT /v1/limits`. Source: AQuoSA 2009, §4.4 and §5.3.2.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Share;

/// Priority levels go from 0 (last) to this (first).
const HIGHEST_LEVEL: u8 = 9;
/// The most that a count may be set to.
const MOST: usize = 10_000;

/// The capacity, and maxima per priority level, user and group. Shares in CPUs. A key that is left out has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HostLimits {
    /// U_lub: the most that may be promised in all. None: what the kernel admits.
    pub capacity: Option<Share>,
    /// Most that the applications of a priority level, 0 to 9, may hold together. Guarantees are honoured whatever it says.
    pub levels: BTreeMap<u8, Share>,
    /// Most that the applications of a user may hold together, by uid.
    pub users: BTreeMap<u32, Share>,
    /// Most that the applications of a group may hold together, by gid. An application counts against the smallest maximum
    /// among all groups of its process, whichever of them it runs under.
    pub groups: BTreeMap<u32, Share>,
    /// Most for users not named; none: no maximum. Root, and the user that the service runs as, have one only by name.
    pub default_user: Option<Share>,
    /// Applications held at the same time.
    pub max_applications: usize,
    /// Of these, at most so many of one user (root excepted): nobody can take every place.
    pub max_applications_per_user: usize,
    /// Threads of one application under reservation; more stay under the normal scheduler.
    pub max_threads: usize,
}

impl Default for HostLimits {
    fn default() -> Self {
        HostLimits {
            capacity: None,
            levels: BTreeMap::new(),
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            // Half a CPU: no user takes a whole one from the others unless the administrator says so.
            default_user: Some(Share::from_ppm(500_000)),
            max_applications: 256,
            max_applications_per_user: 64,
            max_threads: 256,
        }
    }
}

/// A limit is outside what can be meant. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {value}; use {expected}")]
pub struct InvalidLimit {
    /// Dotted name of the key.
    pub key: &'static str,
    /// What it is.
    pub value: String,
    /// What would have been accepted.
    pub expected: &'static str,
}

impl HostLimits {
    /// Says what is out of range, if anything is.
    ///
    /// # Errors
    /// A level above 9, or a count outside 1 to 10000.
    pub fn check(&self) -> Result<(), InvalidLimit> {
        if let Some(level) = self.levels.keys().find(|level| **level > HIGHEST_LEVEL) {
            let expected = "levels 0 (last) to 9 (first)";
            return Err(InvalidLimit { key: "limits.levels", value: level.to_string(), expected });
        }
        let counts = [
            ("limits.max_applications", self.max_applications),
            ("limits.max_applications_per_user", self.max_applications_per_user),
            ("limits.max_threads", self.max_threads),
        ];
        match counts.into_iter().find(|(_, count)| !(1..=MOST).contains(count)) {
            Some((key, count)) => Err(InvalidLimit { key, value: count.to_string(), expected: "1 to 10000" }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_back_as_they_are_written() {
        let mut limits = HostLimits { capacity: Some(Share::from_ppm(1_700_000)), ..HostLimits::default() };
        limits.users.insert(1_000, Share::from_ppm(500_000));
        limits.levels.insert(9, Share::from_ppm(250_000));
        let text = serde_json::to_string(&limits).unwrap();
        assert!(text.contains(r#""users":{"1000":0.5}"#), "{text}");
        assert_eq!(serde_json::from_str::<HostLimits>(&text).unwrap(), limits);
        assert!(
            serde_json::from_str::<HostLimits>(r#"{"user":{"1000":0.5}}"#).is_err(),
            "a misspelt key grants nothing"
        );
    }

    #[test]
    fn a_limit_out_of_range_is_named_with_what_would_be_accepted() {
        let mut limits = HostLimits::default();
        assert_eq!(limits.check(), Ok(()));
        limits.max_threads = 0;
        assert_eq!(limits.check().unwrap_err().to_string(), "limits.max_threads is 0; use 1 to 10000");
        limits.levels.insert(10, Share::ONE);
        let refusal = limits.check().unwrap_err().to_string();
        assert!(refusal.contains("limits.levels is 10") && refusal.contains("0 (last) to 9 (first)"), "{refusal}");
    }
}
