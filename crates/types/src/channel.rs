//! Names of Q-channels and of those who meet on them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A name that is part of an address: 1 to 64 of `a-z A-Z 0-9 . _ -`, beginning with a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Box<str>);

impl Name {
    /// Most bytes of a name.
    pub const MAX: usize = 64;

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is no name: it has to be 1 to {} of a-z, A-Z, 0-9, '.', '_' and '-', the first a letter or a digit",
    Name::MAX
)]
pub struct InvalidName {
    /// What was given, cut to twice the length of a name.
    pub given: String,
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

/// Whether a channel carries an application's data, or the events by which its resource managers act as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    /// Created and opened by applications.
    Data,
    /// The hidden Q-channel of the data channel of the same name: created, opened and left with it.
    Quality,
}

/// Which channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChannelId {
    /// Data or quality.
    pub plane: Plane,
    /// Its name, the same on all hosts.
    pub name: Name,
}

impl ChannelId {
    /// What stands before the name of a Q-channel, as people write it.
    pub const QUALITY: &str = "quality:";

    /// A data channel.
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
    fn a_channel_reads_back_as_it_is_shown() {
        for text in ["video", "quality:video"] {
            assert_eq!(text.parse::<ChannelId>().unwrap().to_string(), text);
        }
        assert!("data:video".parse::<ChannelId>().is_err());
    }

    #[test]
    fn names_are_harmless_parts_of_an_address() {
        for good in ["video", "cam-1.left", "9"] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", "-x", ".x", "a/b", "a*", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
