//! Selects the packets of a stream: by mark, by the cgroup of their socket, or by flow.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::api::Problem;

/// Selects packets. If several selectors match a packet, a flow comes before a mark, a mark before a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Selector {
    /// Packets with this mark (`SO_MARK`, or set by a firewall); 0 means no mark.
    Mark(u32),
    /// Packets from sockets that were created in this cgroup: its path below the mount of cgroup v2, such as
    /// `/user.slice/x.scope`.
    Cgroup(String),
    /// Packets of one flow.
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

impl FromStr for Selector {
    type Err = InvalidSelector;

    /// Reads the printed form.
    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let refused = || InvalidSelector::Kind(text.chars().take(80).collect());
        let (kind, value) = text.trim().split_once(' ').ok_or_else(refused)?;
        let selector = match kind {
            "mark" => Selector::Mark(value.parse().map_err(|_| refused())?),
            "cgroup" => Selector::Cgroup(value.to_owned()),
            "flow" => Selector::Flow(value.parse()?),
            _ => return Err(refused()),
        };
        selector.check().map(|()| selector)
    }
}

/// The transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// The protocol number in the IP header.
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

/// A five-tuple; as text `udp,10.0.0.1:5000,10.0.0.2:6000` (from, to; IPv6 in brackets).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    pub protocol: Protocol,
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

/// A selector that can match no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InvalidSelector {
    /// Not one of the three kinds.
    Kind(String),
    /// Not a five-tuple.
    Flow(String),
    /// The addresses have different IP versions.
    Mixed(String),
    /// Mark 0, which every unmarked packet has.
    NoMark,
    /// The path does not begin at the root.
    Cgroup(String),
}

impl InvalidSelector {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            InvalidSelector::Kind(text) => (
                format!("{text:?} does not select packets"),
                "write mark 7, cgroup /user.slice/x.scope, or flow udp,10.0.0.1:5000,10.0.0.2:6000",
            ),
            InvalidSelector::Flow(flow) => (
                format!("flow {flow:?} is not of the form protocol,from,to"),
                "write it such as udp,10.0.0.1:5000,10.0.0.2:6000 or tcp,[::1]:80,[::1]:4000",
            ),
            InvalidSelector::Mixed(flow) => {
                (format!("flow {flow:?} mixes IPv4 and IPv6"), "give two addresses of the same IP version")
            }
            InvalidSelector::NoMark => (
                "mark 0 means no mark; every unmarked packet has it".to_owned(),
                "choose a number from 1 to 4294967295",
            ),
            InvalidSelector::Cgroup(path) => (
                format!("cgroup {path:?} is not a path below the mount of cgroup v2"),
                "write a path that begins with /, such as /user.slice/x.scope",
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
    /// Checks that the selector can match packets.
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
    fn a_printed_flow_parses_to_itself() {
        for text in ["udp,10.0.0.1:5000,10.0.0.2:6000", "tcp,[::1]:80,[fe80::1]:4000"] {
            assert_eq!(text.parse::<Flow>().unwrap().to_string(), text);
        }
        let json = serde_json::to_string(&Selector::Flow("udp,1.2.3.4:5,6.7.8.9:10".parse().unwrap())).unwrap();
        assert_eq!(json, r#"{"flow":"udp,1.2.3.4:5,6.7.8.9:10"}"#);
        assert!(serde_json::from_str::<Selector>(&json).is_ok());
    }

    #[test]
    fn a_printed_selector_parses_to_itself() {
        for text in ["mark 7", "cgroup /user.slice/a b.scope", "flow udp,10.0.0.1:5000,10.0.0.2:6000"] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        for text in ["", "mark", "mark 0", "mark -1", "cgroup x", "flow udp", "port 80", &"x".repeat(10_000)] {
            let problem = text.parse::<Selector>().unwrap_err().problem();
            assert!(problem.message.len() < 200 && !problem.next_step.is_empty(), "{problem:?}");
        }
    }

    #[test]
    fn an_invalid_selector_is_refused_with_an_example() {
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
