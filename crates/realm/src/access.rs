//! The access list: the rights of each host on each channel and service. A right that is not listed is denied.
//!
//! ```toml
//! hosts = ["cam-1", "cam-2", "wall"]   # all that take part; certificates of others are good for nothing
//! routers = ["edge"]                   # relay for others, and are believed about who says what beyond them
//!
//! [[rule]]
//! channels = ["video", "cam-*"]        # a name, the beginning of names, or "*"; also names of services
//! hosts = ["cam-1"]                    # or ["*"]: all of the above
//! rights = ["create", "send"]          # create, join, send, install, connect
//! ```
//! A host with any right on a channel takes part in its Q-channel, because the resource managers of its members act
//! together. The right `connect` is not a right on a channel: it opens connections to a service of that name (METP).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::pattern;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Largest number of hosts of a realm.
pub const MAX_HOSTS: usize = 1024;

/// Largest number of rules that a refusal names.
const SHOWN_RULES: usize = 4;

/// A right of a host on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Create the channel.
    Create,
    /// Have sinks on the channel.
    Join,
    /// Have sources on the channel.
    Send,
    /// Install filters for the channel on this host.
    Install,
    /// Open connections to the service of this name.
    Connect,
}

impl Right {
    /// The word for it in an access list.
    pub fn name(self) -> &'static str {
        match self {
            Right::Create => "create",
            Right::Join => "join",
            Right::Send => "send",
            Right::Install => "install",
            Right::Connect => "connect",
        }
    }

    /// Whether the right makes its host a member of the channel's Q-channel.
    pub fn is_of_members(self) -> bool {
        self != Right::Connect
    }
}

/// A rule of an access list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Names of channels; a name that ends in `*` stands for all names that begin so.
    pub channels: Vec<String>,
    /// Names of hosts; `*` stands for all hosts of the list.
    pub hosts: Vec<String>,
    /// The rights that these hosts have on these channels.
    pub rights: BTreeSet<Right>,
}

/// An access list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// All hosts that take part, at most [`MAX_HOSTS`].
    pub hosts: BTreeSet<Name>,
    /// The hosts that relay between sites.
    #[serde(default)]
    pub routers: BTreeSet<Name>,
    /// At most [`Access::MAX_RULES`].
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
    /// The file of the list, for refusals.
    #[serde(skip)]
    pub path: PathBuf,
}

impl Access {
    pub const MAX_RULES: usize = 1024;
    /// Largest number of bytes of the file.
    const MAX_TEXT: u64 = 1 << 20;

    /// Reads a list.
    ///
    /// # Errors
    /// The defect and its place.
    pub fn read(path: &Path) -> Result<Access, Error> {
        let io = |source| Error::File { path: path.to_owned(), source };
        let length = fs::metadata(path).map_err(io)?.len();
        if length > Self::MAX_TEXT {
            let reason = format!("it has {length} bytes, the limit is {}", Self::MAX_TEXT);
            return Err(Error::Access { path: path.to_owned(), reason });
        }
        Access::parse(&fs::read_to_string(path).map_err(io)?, path)
    }

    /// Parses `text`, which was read from `path`, and checks it.
    ///
    /// # Errors
    /// The defect and its place.
    pub fn parse(text: &str, path: &Path) -> Result<Access, Error> {
        let bad = |reason: String| Error::Access { path: path.to_owned(), reason };
        let access: Access = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        access.check().map_err(bad)?;
        Ok(Access { path: path.to_owned(), ..access })
    }

    /// Says what contradicts the limits, if anything does.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.hosts.len() > MAX_HOSTS || self.rules.len() > Self::MAX_RULES {
            let (hosts, rules) = (self.hosts.len(), self.rules.len());
            return Err(format!(
                "it has {hosts} hosts and {rules} rules, the limits are {MAX_HOSTS} and {}",
                Self::MAX_RULES
            ));
        }
        let stranger = |host: &&String| *host != "*" && !self.hosts.iter().any(|known| known.as_str() == host.as_str());
        if let Some(host) = self.rules.iter().flat_map(|rule| &rule.hosts).find(stranger) {
            return Err(format!("a rule names the host {host:?}, which is not among `hosts`: add it there"));
        }
        let bad = |name: &&String| !pattern::is_of_names(name);
        match self.rules.iter().flat_map(|rule| &rule.channels).find(bad) {
            Some(name) => {
                Err(format!("{name:?} is not a channel: write a name, the beginning of names and `*`, or `*`"))
            }
            None => Ok(()),
        }
    }

    /// The channels (names or beginnings with `*`) on which a host has a right that `wanted` accepts.
    pub fn channels<'a>(
        &'a self,
        host: &'a Name,
        wanted: impl Fn(Right) -> bool + 'a,
    ) -> impl Iterator<Item = &'a str> {
        let named = |rule: &&Rule| rule.hosts.iter().any(|name| name == "*" || name == host.as_str());
        let known = self.hosts.contains(host);
        let rules = self.rules.iter().filter(move |rule| known && named(rule));
        let granting = rules.filter(move |rule| rule.rights.iter().any(|right| wanted(*right)));
        granting.flat_map(|rule| &rule.channels).map(String::as_str)
    }

    /// Whether a host has a right on a channel or a service. On a Q-channel, every member may do everything but install
    /// filters.
    pub fn gives(&self, host: &Name, right: Right, channel: &ChannelId) -> bool {
        let is_open = channel.plane == Plane::Quality && !matches!(right, Right::Install | Right::Connect);
        let wanted = move |given: Right| if is_open { given.is_of_members() } else { given == right };
        self.channels(host, wanted).any(|name| pattern::matches(name, channel.name.as_str()))
    }

    /// Why a host does not have a right: the rules that match the host and the channel, and the rights that they give.
    pub fn why_not(&self, host: &Name, right: Right, channel: &Name) -> String {
        let path = self.path.display();
        if !self.hosts.contains(host) {
            return format!("it is not among `hosts` in {path}");
        }
        let is_meant = |rule: &Rule| {
            rule.hosts.iter().any(|name| name == "*" || name == host.as_str())
                && rule.channels.iter().any(|name| pattern::matches(name, channel.as_str()))
        };
        let speaks = self.rules.iter().enumerate().filter(|(_, rule)| is_meant(rule));
        let gives = speaks.map(|(at, rule)| {
            let rights: Vec<&str> = rule.rights.iter().map(|right| right.name()).collect();
            format!("rule {} gives {}", at + 1, if rights.is_empty() { "nothing".into() } else { rights.join(", ") })
        });
        match gives.take(SHOWN_RULES).collect::<Vec<_>>() {
            none if none.is_empty() => format!("no rule of {path} gives it `{}`, none names both", right.name()),
            some => format!("no rule of {path} gives it `{}`: {}", right.name(), some.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"
        hosts = ["cam-1", "wall"]
        [[rule]]
        channels = ["cam-*"]
        hosts = ["cam-1"]
        rights = ["create", "send"]
        [[rule]]
        channels = ["*"]
        hosts = ["*"]
        rights = ["join"]
    "#;

    fn read(text: &str) -> Result<Access, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        fs::write(&path, text).unwrap();
        Access::read(&path).map_err(|error| error.to_string())
    }

    fn channel(plane: Plane, name: &str) -> ChannelId {
        ChannelId { plane, name: name.parse().unwrap() }
    }

    #[test]
    fn what_no_rule_allows_is_denied() {
        let access = read(LIST).unwrap();
        let (cam, wall, other) = ("cam-1".parse().unwrap(), "wall".parse().unwrap(), "other".parse().unwrap());
        let video = channel(Plane::Data, "cam-left");
        assert!(access.gives(&cam, Right::Send, &video));
        assert!(access.gives(&wall, Right::Join, &video));
        assert!(!access.gives(&wall, Right::Send, &video));
        assert!(!access.gives(&cam, Right::Send, &channel(Plane::Data, "video")));
        assert!(!access.gives(&cam, Right::Install, &video));
        assert!(!access.gives(&other, Right::Join, &video));
    }

    #[test]
    fn a_refusal_names_the_rules_and_the_file() {
        let access = Access::parse(LIST, Path::new("/etc/list.toml")).unwrap();
        let why = |host: &str, right, name: &str| access.why_not(&host.parse().unwrap(), right, &name.parse().unwrap());
        let said = "no rule of /etc/list.toml gives it `install`: rule 1 gives create, send, rule 2 gives join";
        assert_eq!(why("cam-1", Right::Install, "cam-left"), said);
        assert_eq!(why("other", Right::Join, "cam-left"), "it is not among `hosts` in /etc/list.toml");
        let access = Access { rules: vec![], ..access.clone() };
        let said = "no rule of /etc/list.toml gives it `send`, none names both";
        assert_eq!(access.why_not(&"wall".parse().unwrap(), Right::Send, &"video".parse().unwrap()), said);
    }

    #[test]
    fn members_of_a_channel_speak_on_its_q_channel() {
        let access = read(LIST).unwrap();
        let (wall, other) = ("wall".parse().unwrap(), "other".parse().unwrap());
        assert!(access.gives(&wall, Right::Send, &channel(Plane::Quality, "cam-left")));
        assert!(!access.gives(&other, Right::Send, &channel(Plane::Quality, "cam-left")));
        assert!(!access.gives(&wall, Right::Install, &channel(Plane::Quality, "cam-left")));
    }

    #[test]
    fn who_may_connect_to_a_service_is_not_a_member_of_its_q_channel() {
        let list = "hosts = ['cam']\n[[rule]]\nchannels = ['film']\nhosts = ['*']\nrights = ['connect']";
        let access = read(list).unwrap();
        let cam = "cam".parse().unwrap();
        assert!(access.gives(&cam, Right::Connect, &channel(Plane::Data, "film")));
        assert!(!access.gives(&cam, Right::Connect, &channel(Plane::Data, "news")));
        assert!(!access.gives(&cam, Right::Send, &channel(Plane::Quality, "film")));
        assert!(!access.gives(&"wall".parse().unwrap(), Right::Connect, &channel(Plane::Data, "film")));
    }

    #[test]
    fn a_list_that_means_something_else_is_refused_with_the_place() {
        for (text, said) in [
            ("hosts = [\"a\"]\n[[rule]]\nchannels=[\"x\"]\nhosts=[\"b\"]\nrights=[]", "\"b\""),
            ("hosts = [\"a\"]\n[[rule]]\nchannels=[\"x/y\"]\nhosts=[\"a\"]\nrights=[]", "\"x/y\""),
            ("hosts = [\"a\"]\n[[rule]]\nchannels=[\"x\"]\nhosts=[\"a\"]\nrights=[\"all\"]", "line 5"),
            ("host = []", "host"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
