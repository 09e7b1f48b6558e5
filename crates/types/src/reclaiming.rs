//! The kinds of reclaiming: four rules for a server that has used its budget (002 §2.2, §5.3).

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::InvalidSpec;

/// The rule for unused reserved time, and for a server that has used its budget Q.
///
/// | kind | at the end of the budget | source |
/// |---|---|---|
/// | hard | waits for its deadline, then has Q again | AQuoSA §2.2, hard reservations |
/// | soft | has Q again at once, with a deadline P later | Abeni & Buttazzo 1998 (CBS); AQuoSA §2.2 |
/// | GRUB | as hard; the budget drains at the bandwidth of the active servers, not at 1 | Lipari & Baruah 2000 |
/// | IRIS | as hard; whenever the CPU would idle, waiting servers get their next period early, all by the same time | Marzario et al. 2004 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Reclaiming {
    /// The server never gets more than Q in P.
    Hard,
    /// The deadline is postponed instead of throttling, so the server gets more than Q in P if no thread with an
    /// earlier deadline waits.
    Soft,
    /// The bandwidth of sleeping servers is reclaimed.
    #[default]
    Grub,
    /// Idle time is shared by the servers that have used their budgets, in proportion to their bandwidths.
    Iris,
}

impl Reclaiming {
    /// All kinds, in the order of the help texts.
    pub const ALL: [Reclaiming; 4] = [Reclaiming::Hard, Reclaiming::Soft, Reclaiming::Grub, Reclaiming::Iris];

    /// The name of the feature that SCHED_DEADLINE, which has only hard and GRUB, lacks for this kind; `None` if it
    /// lacks none.
    pub fn beyond_deadline(self) -> Option<&'static str> {
        match self {
            Reclaiming::Hard | Reclaiming::Grub => None,
            Reclaiming::Soft => Some("soft reservations (a postponed deadline instead of throttling)"),
            Reclaiming::Iris => Some("IRIS reclaiming (idle time for servers that have used their budgets)"),
        }
    }
}

impl fmt::Display for Reclaiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Reclaiming::Hard => "hard",
            Reclaiming::Soft => "soft",
            Reclaiming::Grub => "grub",
            Reclaiming::Iris => "iris",
        })
    }
}

impl FromStr for Reclaiming {
    type Err = InvalidSpec;
    fn from_str(text: &str) -> Result<Self, InvalidSpec> {
        let named = Reclaiming::ALL.into_iter().find(|kind| kind.to_string() == text);
        named.ok_or_else(|| InvalidSpec {
            what: "reclaiming",
            text: text.to_owned(),
            expected: "hard, soft, grub or iris",
        })
    }
}

/// Accepts the name, and `true` (GRUB) and `false` (hard) as in the former field `reclaim`.
impl<'de> Deserialize<'de> for Reclaiming {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Kind;
        impl Visitor<'_> for Kind {
            type Value = Reclaiming;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"hard\", \"soft\", \"grub\" or \"iris\"")
            }
            fn visit_bool<E: Error>(self, reclaim: bool) -> Result<Reclaiming, E> {
                Ok(if reclaim { Reclaiming::Grub } else { Reclaiming::Hard })
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Reclaiming, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Contract;

    #[test]
    fn a_printed_kind_parses_to_itself_as_text_and_json() {
        for kind in Reclaiming::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!((json.as_str(), serde_json::from_str(&json).unwrap()), (format!("\"{kind}\"").as_str(), kind));
        }
    }

    #[test]
    fn an_unknown_kind_is_refused_with_the_known_ones() {
        let refusal = "cash".parse::<Reclaiming>().unwrap_err().to_string();
        assert_eq!(refusal, "reclaiming \"cash\" is unknown; use hard, soft, grub or iris");
        assert!(serde_json::from_str::<Reclaiming>("3").is_err());
    }

    #[test]
    fn a_contract_with_the_former_field_still_parses() {
        let kind = |json| serde_json::from_str::<Contract>(json).map(|contract| contract.reclaiming).ok();
        assert_eq!(kind("{}"), Some(Reclaiming::Grub));
        assert_eq!(kind(r#"{"reclaim": true}"#), Some(Reclaiming::Grub));
        assert_eq!(kind(r#"{"reclaim": false}"#), Some(Reclaiming::Hard));
        assert_eq!(kind(r#"{"reclaiming": "iris"}"#), Some(Reclaiming::Iris));
        assert_eq!(kind(r#"{"reclaim": true, "reclaiming": "soft"}"#), None, "both fields at once are ambiguous");
    }

    #[test]
    fn a_mechanism_like_sched_deadline_has_hard_and_grub() {
        let has = |kind: Reclaiming| kind.beyond_deadline().is_none();
        assert_eq!(Reclaiming::ALL.map(has), [true, false, true, false]);
    }
}
