//! The names of mechanisms in the command line, the configuration and `status`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A mechanism that can be requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum MechanismName {
    /// `deadline` if it works on this host, else `ext`.
    #[default]
    Auto,
    /// SCHED_DEADLINE.
    Deadline,
    /// Q-Fabric's own scheduler in the kernel (sched_ext): windows, events, servers for whole programs.
    Ext,
    /// QualMan's dispatcher: slots of a table on one CPU, for programs that SCHED_DEADLINE refuses. Only by name.
    Dispatcher,
}

impl MechanismName {
    pub const ALL: [MechanismName; 4] =
        [MechanismName::Auto, MechanismName::Deadline, MechanismName::Ext, MechanismName::Dispatcher];

    pub const fn name(self) -> &'static str {
        match self {
            MechanismName::Auto => "auto",
            MechanismName::Deadline => "deadline",
            MechanismName::Ext => "ext",
            MechanismName::Dispatcher => "dispatcher",
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown mechanism {given:?}; use {}", MechanismName::ALL.map(MechanismName::name).join(", "))]
pub struct UnknownMechanism {
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
    fn a_printed_mechanism_parses_to_itself() {
        for mechanism in MechanismName::ALL {
            assert_eq!(mechanism.to_string().parse(), Ok(mechanism));
        }
    }

    #[test]
    fn an_unknown_mechanism_is_refused_with_the_known_ones() {
        let refused = "none".parse::<MechanismName>().unwrap_err().to_string();
        assert_eq!(refused, "unknown mechanism \"none\"; use auto, deadline, ext, dispatcher");
    }
}
