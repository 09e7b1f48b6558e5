//! The section `[net]` of the configuration: links that are open to all users from the start.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use qfabric_types::api::InvalidLimit;
use qfabric_types::api::net::LinkRequest;
use qfabric_types::{BitRate, InterfaceName, Share};
use serde::{Deserialize, Deserializer};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetConfig {
    /// UDP port at which the daemon acknowledges the messages of `qfabric net profile` on other hosts, of everybody who
    /// reaches the port. Default: it does not.
    pub answer: Option<NonZeroU16>,
    /// By interface: the links that all users may use.
    pub links: BTreeMap<InterfaceName, LinkConfig>,
}

/// An open link. Rates as in `qfabric net link add`, such as `"100M"`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// The rate of the link.
    #[serde(deserialize_with = "rate")]
    pub rate: BitRate,
    /// The rate at which the host receives; default: `rate`.
    #[serde(default)]
    pub rate_in: Option<Rate>,
    /// The part of both rates that is not promised.
    #[serde(default)]
    pub best_effort: Option<Share>,
    /// Most that the streams of a user may hold together.
    #[serde(default)]
    pub user_cap: Option<Rate>,
    /// Most that the streams of these users may hold together, by uid.
    #[serde(default)]
    pub users: BTreeMap<u32, Rate>,
    /// Most that the streams of these groups may hold together, by gid.
    #[serde(default)]
    pub groups: BTreeMap<u32, Rate>,
    /// Most streams of one user.
    #[serde(default)]
    pub streams_per_user: Option<u32>,
}

/// A rate with its unit, such as `"20M"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub BitRate);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        rate(deserializer).map(Rate)
    }
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BitRate, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

impl NetConfig {
    pub(crate) fn check(&self) -> Result<(), InvalidLimit> {
        let named = |limit: InvalidLimit| InvalidLimit { key: key(limit.key), ..limit };
        self.requests().values().try_for_each(|request| request.check().map_err(named))
    }

    pub(crate) fn requests(&self) -> BTreeMap<InterfaceName, LinkRequest> {
        self.links.iter().map(|(name, link)| (name.clone(), link.request())).collect()
    }
}

/// The dotted name of a key of a link.
fn key(short: &'static str) -> &'static str {
    match short {
        "rate" => "net.links.*.rate",
        "rate_in" => "net.links.*.rate_in",
        "best_effort" => "net.links.*.best_effort",
        "streams_per_user" => "net.links.*.streams_per_user",
        "users" => "net.links.*.users",
        _ => "net.links.*.groups",
    }
}

impl LinkConfig {
    fn request(&self) -> LinkRequest {
        let rates = |named: &BTreeMap<u32, Rate>| named.iter().map(|(id, rate)| (*id, rate.0)).collect();
        LinkRequest {
            rate_in_bps: self.rate_in.map(|rate| rate.0),
            best_effort: self.best_effort,
            user_cap_bps: self.user_cap.map(|cap| cap.0),
            users: rates(&self.users),
            groups: rates(&self.groups),
            streams_per_user: self.streams_per_user.unwrap_or(LinkRequest::STREAMS_PER_USER),
            ..LinkRequest::of_rate(self.rate)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_with_their_units_and_ranges() {
        let text = "[links.eth0]\nrate = \"100M\"\nrate_in = \"50M\"\nuser_cap = \"20M\"\nbest_effort = 0.1\nusers = { 1000 = \"50M\" }\n";
        let config: NetConfig = toml::from_str(text).unwrap();
        let request = config.requests().into_values().next().unwrap();
        assert_eq!((request.rate_bps.get(), request.user_cap_bps), (100_000_000, Some(BitRate::new(20_000_000))));
        assert_eq!(request.rate_in_bps, Some(BitRate::new(50_000_000)));
        assert_eq!(request.users, [(1_000, BitRate::new(50_000_000))].into());
        assert!(config.check().is_ok());
        for (bad, said) in [
            ("[links.eth0]\nrate = \"fast\"", "100M"),
            ("[links.eth0]\nuser_cap = \"1M\"", "rate"),
            ("[links.eth0]\nrate = \"1M\"\nusercap = \"1M\"", "user_cap"),
            ("[links.\"a/b\"]\nrate = \"1M\"", "eth0"),
        ] {
            let error = toml::from_str::<NetConfig>(bad).unwrap_err().to_string();
            assert!(error.contains(said), "{bad}: {error}");
        }
        let port = |text: &str| toml::from_str::<NetConfig>(text).map(|config| config.answer.map(NonZeroU16::get));
        assert_eq!((port(""), port("answer = 59714")), (Ok(None), Ok(Some(59_714))));
        assert!(port("answer = 0").is_err() && port("answer = 65536").is_err());
        let slow: NetConfig = toml::from_str("[links.eth0]\nrate = \"999\"").unwrap();
        assert!(slow.check().unwrap_err().to_string().starts_with("net.links.*.rate is 999 bit/s; use 1k"));
    }
}
