//! Links that the administrator opens to all users: `qfabric net link`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{HeldRateId, NetMechanism, StreamId};
use crate::api::InvalidLimit;
use crate::{BitRate, Share};

/// Opens a link to all users, or replaces its limits: the body of `PUT /v1/net/{interface}/link`. Rates in bits per
/// second, with all headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LinkRequest {
    /// The rate of the link. Streams are promised at most this rate, less the part of best effort.
    pub rate_bps: BitRate,
    /// The rate at which the host receives; absent: `rate_bps`. What arrives is only counted: each sender's host limits
    /// its packets to what was promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_in_bps: Option<BitRate>,
    /// The part of both rates that is not promised; default: the part that the interface keeps for best effort, or
    /// 0.05 if the interface is not under packet scheduling yet.
    #[serde(default)]
    pub best_effort: Option<Share>,
    /// Most that the streams and held rates of a user may have together in each direction; absent: no maximum. It does not apply to root and to the
    /// user that the service runs as.
    #[serde(default)]
    pub user_cap_bps: Option<BitRate>,
    /// Most that the streams of these users may hold together, by uid.
    #[serde(default)]
    pub users: BTreeMap<u32, BitRate>,
    /// Most that the streams of these groups may hold together, by gid. A stream counts against the smallest maximum
    /// among all groups of its process.
    #[serde(default)]
    pub groups: BTreeMap<u32, BitRate>,
    /// Most streams of one user; root is exempt.
    #[serde(default = "streams_per_user")]
    pub streams_per_user: u32,
    /// The mechanism, if the interface is not under packet scheduling yet.
    #[serde(default)]
    pub mechanism: Option<NetMechanism>,
}

fn streams_per_user() -> u32 {
    LinkRequest::STREAMS_PER_USER
}

impl LinkRequest {
    /// Default number of streams of one user: a quarter of the streams of an interface.
    pub const STREAMS_PER_USER: u32 = 16;
    /// Largest number of users, and of groups, with a separate maximum.
    pub const MOST_NAMED: usize = 10_000;
    const LEAST_RATE: BitRate = BitRate::new(1_000);
    const MOST_RATE: BitRate = BitRate::new(400_000_000_000);
    const MOST_BEST_EFFORT: Share = Share::from_ppm(900_000);

    /// A link of `rate_bps` without maxima.
    pub fn of_rate(rate_bps: BitRate) -> LinkRequest {
        LinkRequest {
            rate_bps,
            rate_in_bps: None,
            best_effort: None,
            user_cap_bps: None,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            streams_per_user: Self::STREAMS_PER_USER,
            mechanism: None,
        }
    }

    /// The rate at which the host receives.
    pub fn rate_in(&self) -> BitRate {
        self.rate_in_bps.unwrap_or(self.rate_bps)
    }

    /// Checks all ranges.
    ///
    /// # Errors
    /// [`InvalidLimit`] names the first value that is out of range.
    pub fn check(&self) -> Result<(), InvalidLimit> {
        let refused = |key, value: String, expected| Err(InvalidLimit { key, value, expected });
        for (key, rate) in [("rate", self.rate_bps), ("rate_in", self.rate_in())] {
            if !(Self::LEAST_RATE..=Self::MOST_RATE).contains(&rate) {
                return refused(key, rate.to_string(), "1k to 400G");
            }
        }
        if self.best_effort.is_some_and(|part| part > Self::MOST_BEST_EFFORT) {
            let part = self.best_effort.unwrap_or_default().percent();
            return refused("best_effort", part, "0 to 0.9, a part of the link");
        }
        if !(1..=64).contains(&self.streams_per_user) {
            return refused("streams_per_user", self.streams_per_user.to_string(), "1 to 64");
        }
        for (key, count) in [("users", self.users.len()), ("groups", self.groups.len())] {
            if count > Self::MOST_NAMED {
                return refused(key, format!("{count} entries"), "at most 10000, and user_cap for all others");
            }
        }
        Ok(())
    }
}

/// An open link: its limits, and the promised rates of what the host sends; `incoming` has those of what it receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LinkInfo {
    /// The limits in force.
    pub limits: LinkRequest,
    /// The largest sum of promises: the rate less the part of best effort.
    pub capacity_bps: BitRate,
    /// The sum of the promises.
    pub promised_bps: BitRate,
    /// The rate that can still be promised.
    pub free_bps: BitRate,
    /// The promised rate of each user, by uid.
    pub users_bps: BTreeMap<u32, BitRate>,
    /// The streams and held rates with promises, largest first.
    pub holders: Vec<RateHolder>,
    /// The promises of what the host receives; absent from daemons that do not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incoming: Option<LinkBook>,
}

/// The promised rates of what the host receives. They are only counted: each sender's host limits its packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LinkBook {
    /// The largest sum of promises: the rate less the part of best effort.
    pub capacity_bps: BitRate,
    /// The sum of the promises.
    pub promised_bps: BitRate,
    /// The rate that can still be promised.
    pub free_bps: BitRate,
    /// The promised rate of each user, by uid.
    pub users_bps: BTreeMap<u32, BitRate>,
    /// The held rates, largest first.
    pub holders: Vec<RateHolder>,
}

/// A stream, or a rate without a stream, and its promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RateHolder {
    /// The number of the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamId>,
    /// The number of the held rate, if there is no stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_rate: Option<HeldRateId>,
    /// The user of the promise.
    pub uid: u32,
    /// The packets of the stream, or what the rate is held for.
    pub name: String,
    /// The promised rate.
    pub rate_bps: BitRate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        let link = LinkRequest::of_rate(BitRate::new(100_000_000));
        assert_eq!(link.check(), Ok(()));
        for (bad, said) in [
            (LinkRequest { rate_bps: BitRate::new(999), ..link.clone() }, "rate is 999 bit/s; use 1k to 400G"),
            (LinkRequest { rate_in_bps: Some(BitRate::ZERO), ..link.clone() }, "rate_in is 0 bit/s; use 1k to 400G"),
            (LinkRequest { best_effort: Some(Share::ONE), ..link.clone() }, "best_effort is 100 %; use 0 to 0.9"),
            (LinkRequest { streams_per_user: 65, ..link.clone() }, "streams_per_user is 65; use 1 to 64"),
        ] {
            assert!(bad.check().unwrap_err().to_string().starts_with(said), "{said}");
        }
        let text = r#"{"rate_bps":1000,"user_cap":5}"#;
        assert!(serde_json::from_str::<LinkRequest>(text).unwrap_err().to_string().contains("user_cap"));
    }
}
