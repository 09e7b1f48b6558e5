//! What happens when a server has used its budget: the four algorithms of AQuoSA's scheduler (002 §2.2, §5.3).

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::InvalidSpec;

/// Who gets the time that reservations leave over, and what a server does at the end of its budget Q.
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
    /// Never more than Q in P.
    Hard,
    /// The deadline is postponed instead of throttling: more than Q in P where nobody with an earlier deadline waits.
    Soft,
    /// The bandwidth of servers that sleep is reclaimed while they sleep.
    #[default]
    Grub,
    /// Idle time is shared by the servers that have used their budgets, in proportion to their bandwidths.
    Iris,
}

impl Reclaiming {
    /// All of them, in the order of the help texts.
    pub const ALL: [Reclaiming; 4] = [Reclaiming::Hard, Reclaiming::Soft, Reclaiming::Grub, Reclaiming::Iris];

    /// What a mechanism with SCHED_DEADLINE's two kinds lacks for this one, by name.
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

/// By name; `true` and `false`, as the former field `reclaim` had them, are GRUB and hard.
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
    fn every_kind_reads_back_what_it_shows_as_text_and_as_json() {
        for kind in Reclaiming::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!((json.as_str(), serde_json::from_str(&json).unwrap()), (format!("\"{kind}\"").as_str(), kind));
        }
    }

    #[test]
    fn an_unknown_kind_is_refused_with_the_known_ones() {
        let refusal = "cash".parse::<Reclaiming>().unwrap_err().to_string();
        assert_eq!(refusal, "reclaiming \"cash\" is not known; use hard, soft, grub or iris");
        assert!(serde_json::from_str::<Reclaiming>("3").is_err());
    }

    #[test]
    fn a_contract_with_the_former_field_still_parses() {
        let kind = |json| serde_json::from_str::<Contract>(json).map(|contract| contract.reclaiming).ok();
        assert_eq!(kind("{}"), Some(Reclaiming::Grub));
        assert_eq!(kind(r#"{"reclaim": true}"#), Some(Reclaiming::Grub));
        assert_eq!(kind(r#"{"reclaim": false}"#), Some(Reclaiming::Hard));
        assert_eq!(kind(r#"{"reclaiming": "iris"}"#), Some(Reclaiming::Iris));
        assert_eq!(kind(r#"{"reclaim": true, "reclaiming": "soft"}"#), None, "two answers to one question");
    }

    #[test]
    fn a_mechanism_like_sched_deadline_has_hard_and_grub() {
        let has = |kind: Reclaiming| kind.beyond_deadline().is_none();
        assert_eq!(Reclaiming::ALL.map(has), [true, false, true, false]);
    }
}
