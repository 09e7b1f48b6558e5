//! Limits that the administrator sets: the capacity, and maxima per priority level, user and group. Shares in
//! millionths of one CPU; in configuration files, fractions of one CPU. Source: AQuoSA 2009, §4.4 and §5.3.2.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_types::{Owner, Share};
use serde::{Deserialize, Serialize};

/// Number of priority levels: 0 (last) to 9 (first), as in a contract.
pub const LEVELS: usize = 10;

/// The supervisor's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// U_lub: the largest share that may be granted in total.
    pub capacity: Share,
    /// Largest share that the applications of a level may hold together, so that a high level cannot starve the lower
    /// ones. A level without an entry has no maximum. Guaranteed parts are honoured even above the maximum.
    pub levels: BTreeMap<u8, Share>,
    /// By uid: most that the applications of a user may hold together.
    pub users: BTreeMap<u32, Share>,
    /// By gid: most that the applications of a group may hold together.
    pub groups: BTreeMap<u32, Share>,
    /// The maximum of users without an entry in `users`; `None` means no maximum.
    pub default_user: Option<Share>,
    /// Users to which `default_user` does not apply: the administrators.
    pub exempt: BTreeSet<u32>,
}

impl Default for Limits {
    /// One CPU less the 5 % that Linux reserves for ordinary threads; no maxima.
    fn default() -> Self {
        Limits {
            capacity: Share::from_ppm(950_000),
            levels: BTreeMap::new(),
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            default_user: None,
            exempt: BTreeSet::new(),
        }
    }
}

impl Limits {
    pub fn of_capacity(capacity: Share) -> Self {
        Limits { capacity, ..Limits::default() }
    }

    /// Largest share that the applications of `owner`'s user may hold together; `None` means no maximum.
    pub fn user_cap(&self, owner: Owner) -> Option<Share> {
        let default = self.default_user.filter(|_| !self.exempt.contains(&owner.uid));
        self.users.get(&owner.uid).copied().or(default)
    }

    /// Largest share that the applications of `owner`'s group may hold together; `None` means no maximum.
    pub fn group_cap(&self, owner: Owner) -> Option<Share> {
        self.groups.get(&owner.gid).copied()
    }
}
