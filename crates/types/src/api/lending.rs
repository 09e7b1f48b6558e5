//! Loans: CPU time, memory and a rate out of a link that one host keeps for an application that another host refused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::channel::Name;
use crate::{BitRate, Bytes, InterfaceName, Nanos, Share};

/// The token that an application presents to the lender to use a loan: `HOST:NUMBER`. HOST is the host that refused
/// the application; NUMBER is random, in hexadecimal digits, so that it cannot be guessed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Claim {
    /// The host that asked for the loan.
    pub host: Name,
    /// The request's number on that host.
    pub number: u64,
}

/// A text is not a valid claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a claim; use the HOST:NUMBER of the refusal, such as alpha:5f3c09a1d2e4b687")]
pub struct NoClaim {
    /// The given text, cut to the length of a claim.
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

/// A rate out of a link of the lender. A stream of the application draws from it with the number of the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoanRate {
    /// The interface of the lender.
    pub interface: InterfaceName,
    /// The rate that is kept, in bits per second.
    #[serde(rename = "rate_bps")]
    pub rate: BitRate,
}

impl fmt::Display for LoanRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} out of {}", self.rate, self.interface)
    }
}

/// An offer of another host to keep what this host had to refuse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Offer {
    /// The host that keeps the share (the lender).
    pub host: Name,
    /// The share that is kept.
    pub share: Share,
    /// The resident memory that is kept: all that the application asked for, or zero if it asked for none or the lender
    /// is of a version that lends the processor alone.
    #[serde(default, rename = "memory_bytes")]
    pub memory: Bytes,
    /// The rate that is kept: all that was asked for, or absent if none was, or if the lender is of a version that
    /// keeps no rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<LoanRate>,
    /// Time from now for which the share is kept, unless it is claimed before.
    pub held_ns: Nanos,
    /// The token to present to the lender.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub claim: Claim,
}

/// A share, memory and a rate that this host keeps for an application of another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Loan {
    /// The host that asked for the loan.
    pub host: Name,
    /// The share that is kept.
    pub share: Share,
    /// The resident memory that is kept; zero if the application asked for none.
    #[serde(default, rename = "memory_bytes")]
    pub memory: Bytes,
    /// The rate that is kept; absent if none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<LoanRate>,
    /// Remaining time for which the share is kept, unless it is claimed before.
    pub left_ns: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_without_memory_is_read_as_one_of_the_processor_alone() {
        let text = r#"{"host":"beta","share":0.5,"held_ns":3000000000,"claim":"alpha:5f3c09a1d2e4b687"}"#;
        let offer: Offer = serde_json::from_str(text).unwrap();
        assert_eq!((offer.share, offer.memory, &offer.rate), (Share::from_ppm(500_000), Bytes::ZERO, &None));
        assert!(!serde_json::to_string(&offer).unwrap().contains("rate"));
        let rate = Some(LoanRate { interface: "eth0".parse().unwrap(), rate: BitRate::new(2_000_000) });
        let written = serde_json::to_string(&Offer { memory: Bytes::from_mib(64), rate, ..offer }).unwrap();
        assert!(written.contains(r#""memory_bytes":67108864"#), "{written}");
        assert!(written.contains(r#""rate":{"interface":"eth0","rate_bps":2000000}"#), "{written}");
    }

    #[test]
    fn a_printed_claim_parses_to_itself() {
        for text in ["alpha:5f3c09a1d2e4b687", "cam-1.left:0000000000000001"] {
            assert_eq!(text.parse::<Claim>().unwrap().to_string(), text);
        }
        for bad in ["", "alpha", "alpha:", "alpha:+1", "alpha:xyz", ":12", "a/b:12", "alpha:00005f3c09a1d2e4b687"] {
            let refusal = bad.parse::<Claim>().unwrap_err().to_string();
            assert!(refusal.contains("HOST:NUMBER"), "{bad}: {refusal}");
        }
    }
}
