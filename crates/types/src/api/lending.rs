//! CPU time that one host keeps for an application that another one had to refuse.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::channel::Name;
use crate::{Nanos, Share};

/// What an application shows at the host that keeps something for it: `HOST:NUMBER`, the host that refused it and a
/// number in hexadecimal digits that nobody can guess.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Claim {
    /// The host that asked.
    pub host: Name,
    /// Its number for the request.
    pub number: u64,
}

/// Why a text is no claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no claim: it has to be HOST:NUMBER as a refusal said it, such as alpha:5f3c09a1d2e4b687")]
pub struct NoClaim {
    /// What was given, cut to the length of a claim.
    pub given: String,
}

impl FromStr for Claim {
    type Err = NoClaim;

    fn from_str(text: &str) -> Result<Claim, NoClaim> {
        let read = |(host, number): (&str, &str)| {
            let digits = number.len() <= 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = u64::from_str_radix(number, 16).ok().filter(|_| digits)?;
            Some(Claim { host: host.parse().ok()?, number })
        };
        let refused = || NoClaim { given: text.chars().take(Name::MAX + 17).collect() };
        text.split_once(':').and_then(read).ok_or_else(refused)
    }
}

impl TryFrom<String> for Claim {
    type Error = NoClaim;

    fn try_from(text: String) -> Result<Claim, NoClaim> {
        text.parse()
    }
}

impl From<Claim> for String {
    fn from(claim: Claim) -> String {
        claim.to_string()
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.host, self.number)
    }
}

/// Another host keeps what this one had to refuse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Offer {
    /// Which.
    pub host: Name,
    /// How much.
    pub share: Share,
    /// For how long from now, unless it is claimed before.
    pub held_ns: Nanos,
    /// What is to be shown there.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub claim: Claim,
}

/// What this host keeps for another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Loan {
    /// For which.
    pub host: Name,
    /// How much.
    pub share: Share,
    /// For how much longer, unless it is claimed before.
    pub left_ns: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_reads_back_as_it_is_shown() {
        for text in ["alpha:5f3c09a1d2e4b687", "cam-1.left:0000000000000001"] {
            assert_eq!(text.parse::<Claim>().unwrap().to_string(), text);
        }
        for bad in ["", "alpha", "alpha:", "alpha:+1", "alpha:xyz", ":12", "a/b:12", "alpha:00005f3c09a1d2e4b687"] {
            let said = bad.parse::<Claim>().unwrap_err().to_string();
            assert!(said.contains("HOST:NUMBER"), "{bad}: {said}");
        }
    }
}
