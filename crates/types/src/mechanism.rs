//! The mechanisms, as the command line, the configuration and `status` name them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A mechanism to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum MechanismName {
    /// `deadline` where it works, else `ext`.
    #[default]
    Auto,
    /// SCHED_DEADLINE.
    Deadline,
    /// Q-Fabric's own scheduler in the kernel (sched_ext): windows, events, servers for whole programs.
    Ext,
}

impl MechanismName {
    /// All of them.
    pub const ALL: [MechanismName; 3] = [MechanismName::Auto, MechanismName::Deadline, MechanismName::Ext];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            MechanismName::Auto => "auto",
            MechanismName::Deadline => "deadline",
            MechanismName::Ext => "ext",
        }
    }
}

impl fmt::Display for MechanismName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<MechanismName> for &'static str {
    fn from(mechanism: MechanismName) -> &'static str {
        mechanism.name()
    }
}

/// No mechanism has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no mechanism {given:?}; there are {}", MechanismName::ALL.map(MechanismName::name).join(", "))]
pub struct UnknownMechanism {
    /// What was given.
    pub given: String,
}

impl FromStr for MechanismName {
    type Err = UnknownMechanism;

    fn from_str(text: &str) -> Result<Self, UnknownMechanism> {
        let found = MechanismName::ALL.into_iter().find(|mechanism| mechanism.name() == text);
        found.ok_or_else(|| UnknownMechanism { given: text.chars().take(40).collect() })
    }
}

impl TryFrom<String> for MechanismName {
    type Error = UnknownMechanism;

    fn try_from(text: String) -> Result<Self, UnknownMechanism> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_is_read_as_it_is_shown() {
        for mechanism in MechanismName::ALL {
            assert_eq!(mechanism.to_string().parse(), Ok(mechanism));
        }
    }

    #[test]
    fn an_unknown_mechanism_is_refused_with_those_there_are() {
        let refused = "none".parse::<MechanismName>().unwrap_err().to_string();
        assert_eq!(refused, "there is no mechanism \"none\"; there are auto, deadline, ext");
    }
}
