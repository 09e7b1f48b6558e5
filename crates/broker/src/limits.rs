//! What the administrator allows: the capacity, and maxima per priority level, user and group.
//! Shares in millionths of one CPU; in files, fractions of one CPU. Source: AQuoSA 2009, §4.4 and §5.3.2.

use std::collections::{BTreeMap, BTreeSet};

use qfabric_types::{Owner, Share};
use serde::{Deserialize, Serialize};

/// Priority levels, 0 (last) to 9 (first), as in a contract.
pub const LEVELS: usize = 10;

/// The supervisor's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// U_lub: what may be handed out in all.
    pub capacity: Share,
    /// Most that a level's applications may hold together, so that a high level cannot starve the lower
    /// ones; levels not named have no maximum. Guaranteed parts are honoured whatever it says.
    pub levels: BTreeMap<u8, Share>,
    /// Most that a user's applications may hold together, by uid.
    pub users: BTreeMap<u32, Share>,
    /// Most that a group's applications may hold together, by gid.
    pub groups: BTreeMap<u32, Share>,
    /// For users not named in `users`; none: they have no maximum.
    pub default_user: Option<Share>,
    /// Users whom `default_user` is not for: the administrators.
    pub exempt: BTreeSet<u32>,
}

impl Default for Limits {
    /// One CPU less the 5 % that Linux keeps for everybody else; no maxima.
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
    /// No maxima, only a capacity.
    pub fn of_capacity(capacity: Share) -> Self {
        Limits { capacity, ..Limits::default() }
    }

    /// Most that the applications of `owner`'s user may hold together, if there is a maximum.
    pub fn user_cap(&self, owner: Owner) -> Option<Share> {
        let default = self.default_user.filter(|_| !self.exempt.contains(&owner.uid));
        self.users.get(&owner.uid).copied().or(default)
    }

    /// Most that the applications of `owner`'s group may hold together, if there is a maximum.
    pub fn group_cap(&self, owner: Owner) -> Option<Share> {
        self.groups.get(&owner.gid).copied()
    }
}
