//! Names of Q-channels, hosts and members.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::api::Problem;

/// A name that is part of an address: 1 to 64 of `a-z A-Z 0-9 . _ -`, beginning with a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Box<str>);

impl Name {
    /// Largest number of bytes of a name.
    pub const MAX: usize = 64;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub struct InvalidName {
    /// The given text, cut to twice the length of a name.
    pub given: String,
}

impl InvalidName {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let next_step =
            format!("use 1 to {} of a-z, A-Z, 0-9, '.', '_' and '-', beginning with a letter or a digit", Name::MAX);
        Problem::new("invalid_name", format!("{:?} is not a valid name", self.given), next_step)
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Name, InvalidName> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && text.len() <= Name::MAX && text.bytes().all(allowed) {
            return Ok(Name(text.into()));
        }
        Err(InvalidName { given: text.chars().take(2 * Name::MAX).collect() })
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Name, InvalidName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0.into()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a channel carries an application's data, or the events by which its resource managers coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    /// A channel that applications create and open.
    Data,
    /// The hidden Q-channel of the data channel with the same name. It is created, opened and left together with
    /// the data channel.
    Quality,
}

/// The identity of a channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChannelId {
    pub plane: Plane,
    /// The same on all hosts.
    pub name: Name,
}

impl ChannelId {
    /// Prefix of a Q-channel's name in text.
    pub const QUALITY: &str = "quality:";

    /// The data channel with this name.
    pub fn data(name: Name) -> ChannelId {
        ChannelId { plane: Plane::Data, name }
    }
}

/// `NAME`, or `quality:NAME`.
impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.plane {
            Plane::Data => self.name.fmt(f),
            Plane::Quality => write!(f, "{}{}", ChannelId::QUALITY, self.name),
        }
    }
}

impl FromStr for ChannelId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<ChannelId, InvalidName> {
        match text.strip_prefix(ChannelId::QUALITY) {
            Some(name) => Ok(ChannelId { plane: Plane::Quality, name: name.parse()? }),
            None => Ok(ChannelId::data(text.parse()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_channel_parses_to_itself() {
        for text in ["video", "quality:video"] {
            assert_eq!(text.parse::<ChannelId>().unwrap().to_string(), text);
        }
        assert!("data:video".parse::<ChannelId>().is_err());
    }

    #[test]
    fn names_are_safe_as_parts_of_an_address() {
        for good in ["video", "cam-1.left", "9"] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", "-x", ".x", "a/b", "a*", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
