//! Rights of this host's users on channels: tables `[[channels.rule]]`.
//!
//! Without rules, every user may do what the access list allows this host. With rules, a user may do what at least one
//! of them allows. Root and the user that the service runs as may do everything. Only managers have sources on
//! Q-channels.

use std::collections::BTreeSet;
use std::fmt;

use qfabric_types::api::Problem;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::{Owner, pattern};
use serde::Deserialize;

use super::problems;
use super::settings::Settings;
use crate::auth::Peer;

/// A right of a user on a channel. Each right includes the right to open the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Create it.
    Create,
    /// Open it and read its specification, members and counters.
    Open,
    /// Have sinks on it: read its events.
    Join,
    /// Have sources on it: feed it.
    Send,
    /// Install filters other than those for the user's own sinks.
    Install,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Right::Create => "create",
            Right::Open => "open",
            Right::Join => "join",
            Right::Send => "send",
            Right::Install => "install",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Names of channels; a name that ends in `*` stands for all names with this prefix.
    pub channels: Vec<String>,
    /// Users by uid. A rule without users and groups is for every user.
    #[serde(default)]
    pub users: BTreeSet<u32>,
    /// Groups by gid: the rule is for processes that run under one of them.
    #[serde(default)]
    pub groups: BTreeSet<u32>,
    pub rights: BTreeSet<Right>,
}

impl Rule {
    /// The first name that is not a channel name.
    pub(super) fn bad_name(&self) -> Option<&str> {
        self.channels.iter().map(String::as_str).find(|name| !pattern::is_of_names(name))
    }

    fn allows(&self, owner: Owner, right: Right, channel: &Name) -> bool {
        let everybody = self.users.is_empty() && self.groups.is_empty();
        let named = everybody || self.users.contains(&owner.uid) || self.groups.contains(&owner.gid);
        let granted = self.rights.contains(&right) || (right == Right::Open && !self.rights.is_empty());
        named && granted && self.channels.iter().any(|name| pattern::matches(name, channel.as_str()))
    }
}

/// Whether the rules give the user this right.
fn allow(rules: &[Rule], owner: Owner, right: Right, channel: &ChannelId) -> bool {
    match (channel.plane, right) {
        (Plane::Quality, Right::Create | Right::Send) => false,
        _ => rules.is_empty() || rules.iter().any(|rule| rule.allows(owner, right, &channel.name)),
    }
}

impl Settings {
    /// Refuses an action that this host's rules do not allow the user.
    pub(super) fn permit(&self, peer: Peer, right: Right, channel: &ChannelId) -> Result<(), Problem> {
        match peer.administers() || allow(&self.get().rules, peer.owner, right, channel) {
            true => Ok(()),
            false => Err(problems::not_your_right(peer.owner.uid, right, channel)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        rule: Vec<Rule>,
    }

    fn rules(text: &str) -> Vec<Rule> {
        toml::from_str::<File>(text).unwrap().rule
    }

    fn owner(uid: u32) -> Owner {
        Owner { uid, gid: uid }
    }

    #[test]
    fn with_rules_a_user_may_do_what_one_of_them_allows() {
        let rules = rules(
            "[[rule]]\nchannels = ['cam-*']\nusers = [1000]\nrights = ['create', 'send']\n\
             [[rule]]\nchannels = ['cam-1']\ngroups = [44]\nrights = ['join']\n\
             [[rule]]\nchannels = ['news']\nrights = ['open']\n",
        );
        let may = |uid, right, channel: &str| allow(&rules, owner(uid), right, &channel.parse().unwrap());
        assert!(may(1000, Right::Send, "cam-1") && may(1000, Right::Create, "cam-2") && may(44, Right::Join, "cam-1"));
        assert!(may(1000, Right::Open, "cam-1") && may(44, Right::Open, "cam-1"), "any right opens");
        assert!(!may(1000, Right::Join, "cam-1") && !may(44, Right::Join, "cam-2") && !may(44, Right::Send, "cam-1"));
        assert!(may(7, Right::Open, "news") && !may(7, Right::Join, "news") && !may(7, Right::Open, "cam-1"));
    }

    #[test]
    fn without_rules_everybody_may_do_everything_but_speak_as_a_manager() {
        let video: ChannelId = "video".parse().unwrap();
        let managers = ChannelId { plane: Plane::Quality, ..video.clone() };
        assert!(allow(&[], owner(7), Right::Create, &video) && allow(&[], owner(7), Right::Send, &video));
        assert!(allow(&[], owner(7), Right::Join, &managers) && !allow(&[], owner(7), Right::Send, &managers));
    }
}
