//! Whose packets a stream takes: those with a mark, from a cgroup's sockets, or of one flow.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::api::Problem;

/// Whose packets. Where several fit, the flow decides before the mark, the mark before the cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Selector {
    /// Those with this mark (`SO_MARK`, or set by a firewall); 0 is no mark.
    Mark(u32),
    /// Those from sockets made in this cgroup: its path below the mount of cgroup v2, such as `/user.slice/x.scope`.
    Cgroup(String),
    /// Those of one flow.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "udp,10.0.0.1:5000,10.0.0.2:6000"))]
    Flow(Flow),
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Mark(mark) => f.pad(&format!("mark {mark}")),
            Selector::Cgroup(path) => f.pad(&format!("cgroup {path}")),
            Selector::Flow(flow) => f.pad(&format!("flow {flow}")),
        }
    }
}

/// What is carried, as the IP header numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Its number.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

/// A five-tuple, as text: `udp,10.0.0.1:5000,10.0.0.2:6000` (from, to; IPv6 in brackets).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes to.
    pub destination: SocketAddr,
}

/// The text names no packets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InvalidSelector {
    /// Not a five-tuple.
    Flow(String),
    /// Neither side can reach the other.
    Mixed(String),
    /// Mark 0 is what packets have that nobody marked.
    NoMark,
    /// A path that does not begin at the root.
    Cgroup(String),
}

impl InvalidSelector {
    /// What happened, and what to do about it.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            InvalidSelector::Flow(flow) => (
                format!("flow {flow:?} is not protocol,from,to"),
                "write it such as udp,10.0.0.1:5000,10.0.0.2:6000 or tcp,[::1]:80,[::1]:4000",
            ),
            InvalidSelector::Mixed(flow) => {
                (format!("flow {flow:?} goes from one IP version to the other"), "name two addresses of the same")
            }
            InvalidSelector::NoMark => {
                ("mark 0 is no mark: every packet has it".to_owned(), "choose a number from 1 to 4294967295")
            }
            InvalidSelector::Cgroup(path) => (
                format!("cgroup {path:?} is not a path below the mount of cgroup v2"),
                "begin with /, such as /user.slice/x.scope",
            ),
        };
        Problem::new("net_invalid", message, next_step)
    }
}

impl FromStr for Flow {
    type Err = InvalidSelector;
    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let refused = || InvalidSelector::Flow(text.to_owned());
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let [protocol, source, destination] = parts[..] else { return Err(refused()) };
        let protocol = [Protocol::Tcp, Protocol::Udp].into_iter().find(|p| p.name() == protocol).ok_or_else(refused)?;
        let address = |text: &str| text.parse::<SocketAddr>().map_err(|_| refused());
        let (source, destination) = (address(source)?, address(destination)?);
        match source.is_ipv4() == destination.is_ipv4() {
            true => Ok(Flow { protocol, source, destination }),
            false => Err(InvalidSelector::Mixed(text.to_owned())),
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{},{},{}", self.protocol.name(), self.source, self.destination))
    }
}

impl Serialize for Flow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Flow {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Selector {
    /// Whether it names packets at all.
    pub fn check(&self) -> Result<(), InvalidSelector> {
        match self {
            Selector::Mark(0) => Err(InvalidSelector::NoMark),
            Selector::Cgroup(path) if !path.starts_with('/') || path.contains("/../") || path.ends_with("/..") => {
                Err(InvalidSelector::Cgroup(path.clone()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_reads_back_what_it_shows() {
        for text in ["udp,10.0.0.1:5000,10.0.0.2:6000", "tcp,[::1]:80,[fe80::1]:4000"] {
            assert_eq!(text.parse::<Flow>().unwrap().to_string(), text);
        }
        let json = serde_json::to_string(&Selector::Flow("udp,1.2.3.4:5,6.7.8.9:10".parse().unwrap())).unwrap();
        assert_eq!(json, r#"{"flow":"udp,1.2.3.4:5,6.7.8.9:10"}"#);
        assert!(serde_json::from_str::<Selector>(&json).is_ok());
    }

    #[test]
    fn what_names_no_packets_is_refused_with_an_example() {
        for text in ["", "udp", "icmp,1.2.3.4:5,6.7.8.9:10", "udp,1.2.3.4,6.7.8.9:10", "udp,1.2.3.4:99999,6.7.8.9:1"] {
            let refusal = text.parse::<Flow>().unwrap_err().to_string();
            assert!(refusal.contains("udp,10.0.0.1:5000"), "{text}: {refusal}");
        }
        assert!(matches!("udp,1.2.3.4:5,[::1]:10".parse::<Flow>(), Err(InvalidSelector::Mixed(_))));
        assert_eq!(Selector::Mark(0).check(), Err(InvalidSelector::NoMark));
        for path in ["x", "/../x", "/a/.."] {
            assert!(Selector::Cgroup(path.into()).check().is_err(), "{path}");
        }
    }
}
