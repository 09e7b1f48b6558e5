//! The resources that brokers promise, and amounts of them as one value (QualMan §2.2: a uniform view of every
//! shared resource).
//!
//! | resource | amount | printed name |
//! |---|---|---|
//! | the processor | [`Share`] | `cpu` |
//! | pinned memory | [`Bytes`] | `memory` |
//! | one direction of a link | [`BitRate`] | `network eth0 out` |

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{BitRate, Bytes, Share};

/// The name of a network interface: 1 to 15 printable ASCII characters without `/`, `:` and white space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceName(String);

impl InterfaceName {
    /// Longest name that Linux accepts (IFNAMSIZ − 1).
    pub const MAX: usize = 15;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text is not the name of an interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not the name of a network interface; use 1 to {} printable characters without '/', ':' and spaces, such as eth0",
    InterfaceName::MAX
)]
pub struct InvalidInterfaceName {
    /// The given text, cut to 40 characters.
    pub given: String,
}

impl FromStr for InterfaceName {
    type Err = InvalidInterfaceName;

    fn from_str(text: &str) -> Result<Self, InvalidInterfaceName> {
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':');
        let fits = (1..=Self::MAX).contains(&text.len()) && text.bytes().all(is_allowed) && !matches!(text, "." | "..");
        let refused = || InvalidInterfaceName { given: text.chars().take(40).collect() };
        fits.then(|| InterfaceName(text.to_owned())).ok_or_else(refused)
    }
}

impl TryFrom<String> for InterfaceName {
    type Error = InvalidInterfaceName;

    fn try_from(text: String) -> Result<Self, InvalidInterfaceName> {
        text.parse()
    }
}

impl From<InterfaceName> for String {
    fn from(name: InterfaceName) -> String {
        name.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The direction of traffic, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Traffic that the host sends.
    Out,
    /// Traffic that the host receives.
    In,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Direction::Out => "out",
            Direction::In => "in",
        })
    }
}

/// One direction of the link behind an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LinkEnd {
    pub interface: InterfaceName,
    pub direction: Direction,
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.interface, self.direction)
    }
}

/// A resource of one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Resource {
    Cpu,
    Memory,
    Network(LinkEnd),
}

/// A text is not the name of a resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a resource; use cpu, memory, or network INTERFACE out|in")]
pub struct UnknownResource {
    /// The given text, cut to 40 characters.
    pub given: String,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Cpu => f.pad("cpu"),
            Resource::Memory => f.pad("memory"),
            Resource::Network(end) => f.pad(&format!("network {end}")),
        }
    }
}

impl FromStr for Resource {
    type Err = UnknownResource;

    fn from_str(text: &str) -> Result<Self, UnknownResource> {
        let refused = || UnknownResource { given: text.chars().take(40).collect() };
        let words: Vec<&str> = text.split(' ').collect();
        let direction = match words[..] {
            ["cpu"] => return Ok(Resource::Cpu),
            ["memory"] => return Ok(Resource::Memory),
            ["network", _, "out"] => Direction::Out,
            ["network", _, "in"] => Direction::In,
            _ => return Err(refused()),
        };
        Ok(Resource::Network(LinkEnd { interface: words[1].parse().map_err(|_| refused())?, direction }))
    }
}

impl TryFrom<String> for Resource {
    type Error = UnknownResource;

    fn try_from(text: String) -> Result<Self, UnknownResource> {
        text.parse()
    }
}

impl From<Resource> for String {
    fn from(resource: Resource) -> String {
        resource.to_string()
    }
}

/// An amount of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Cpu(Share),
    Memory(Bytes),
    Network(BitRate),
}

impl Amount {
    /// The amount as a number: CPUs, bytes, or bits per second.
    pub fn value(self) -> f64 {
        match self {
            Amount::Cpu(share) => share.as_f64(),
            Amount::Memory(bytes) => bytes.as_f64(),
            Amount::Network(rate) => rate.as_f64(),
        }
    }

    /// The unit of [`Amount::value`].
    pub const fn unit(self) -> &'static str {
        match self {
            Amount::Cpu(_) => "CPU",
            Amount::Memory(_) => "bytes",
            Amount::Network(_) => "bit/s",
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Cpu(share) => share.fmt(f),
            Amount::Memory(bytes) => bytes.fmt(f),
            Amount::Network(rate) => rate.fmt(f),
        }
    }
}

/// Amounts of all resources of one host: a vector with one component per resource; absent components are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// Share of the processor, in CPUs.
    pub cpu: Share,
    /// Pinned memory in bytes.
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
    /// Bits per second by link and direction, at most [`Resources::MAX_LINKS`]; change it with
    /// [`Resources::set_network`].
    #[serde(rename = "network_bps", with = "links")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<links::LinkRate>))]
    network: BTreeMap<LinkEnd, BitRate>,
}

/// A vector would name more links than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {} link directions; ask for fewer", Resources::MAX_LINKS)]
pub struct TooManyLinks;

impl Resources {
    /// Limit of link directions in one vector; bounds the size of messages.
    pub const MAX_LINKS: usize = 16;

    /// The rate on a link; zero if the vector does not name it.
    pub fn network(&self, end: &LinkEnd) -> BitRate {
        self.network.get(end).copied().unwrap_or_default()
    }

    /// Sets the rate on a link; zero removes the link, so that equal amounts are equal values.
    ///
    /// # Errors
    /// The vector already names [`Resources::MAX_LINKS`] other links.
    pub fn set_network(&mut self, end: LinkEnd, rate: BitRate) -> Result<(), TooManyLinks> {
        if rate == BitRate::ZERO {
            self.network.remove(&end);
            return Ok(());
        }
        if self.network.len() >= Self::MAX_LINKS && !self.network.contains_key(&end) {
            return Err(TooManyLinks);
        }
        self.network.insert(end, rate);
        Ok(())
    }

    /// The components that are not zero, in the order CPU, memory, links by name.
    pub fn iter(&self) -> impl Iterator<Item = (Resource, Amount)> + '_ {
        let fixed = [(Resource::Cpu, Amount::Cpu(self.cpu)), (Resource::Memory, Amount::Memory(self.memory))];
        let links = self.network.iter().map(|(end, rate)| (Resource::Network(end.clone()), Amount::Network(*rate)));
        fixed.into_iter().chain(links).filter(|(_, amount)| amount.value() > 0.0)
    }

    pub fn is_zero(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// Links as a list: JSON has no keys of two parts.
mod links {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use super::{BitRate, LinkEnd, Resources, TooManyLinks};

    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub(super) struct LinkRate {
        #[serde(flatten)]
        end: LinkEnd,
        rate_bps: BitRate,
    }

    pub(super) fn serialize<S: Serializer>(
        links: &BTreeMap<LinkEnd, BitRate>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(links.iter().map(|(end, rate_bps)| LinkRate { end: end.clone(), rate_bps: *rate_bps }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<LinkEnd, BitRate>, D::Error> {
        let entries = Vec::<LinkRate>::deserialize(deserializer)?;
        if entries.len() > Resources::MAX_LINKS {
            return Err(de::Error::custom(TooManyLinks));
        }
        let mut links = BTreeMap::new();
        for LinkRate { end, rate_bps } in entries {
            if links.insert(end.clone(), rate_bps).is_some() {
                return Err(de::Error::custom(format_args!("link {end} is given twice; give each direction once")));
            }
        }
        links.retain(|_, rate| *rate > BitRate::ZERO);
        Ok(links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eth0(direction: Direction) -> LinkEnd {
        LinkEnd { interface: "eth0".parse().unwrap(), direction }
    }

    #[test]
    fn a_printed_resource_parses_to_itself() {
        for resource in [Resource::Cpu, Resource::Memory, Resource::Network(eth0(Direction::In))] {
            assert_eq!(resource.to_string().parse(), Ok(resource));
        }
        for nonsense in ["", "disk", "network", "network eth0", "network eth0 up", "network a/b out"] {
            assert!(nonsense.parse::<Resource>().is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn names_that_linux_refuses_are_refused() {
        for name in ["", "..", "sixteen-letters!", "a b", "a/b", "a:0", "größe"] {
            assert!(name.parse::<InterfaceName>().is_err(), "{name:?}");
        }
        assert!("fifteen-letters".parse::<InterfaceName>().is_ok());
    }

    #[test]
    fn a_vector_shows_only_components_that_are_not_zero() {
        let mut asked = Resources { memory: Bytes::from_mib(1), ..Resources::default() };
        assert!(Resources::default().is_zero() && !asked.is_zero());
        asked.set_network(eth0(Direction::Out), BitRate::new(5)).unwrap();
        let shown: Vec<_> = asked.iter().map(|(resource, amount)| format!("{resource}: {amount}")).collect();
        assert_eq!(shown, ["memory: 1 MiB", "network eth0 out: 5 bit/s"]);
        asked.set_network(eth0(Direction::Out), BitRate::ZERO).unwrap();
        asked.set_network(eth0(Direction::In), BitRate::ZERO).unwrap();
        assert_eq!(asked, Resources { memory: Bytes::from_mib(1), ..Resources::default() });
    }

    #[test]
    fn a_vector_survives_json_and_its_length_is_bounded() {
        let mut asked = Resources { cpu: Share::from_ppm(250_000), ..Resources::default() };
        for link in 0..Resources::MAX_LINKS {
            let end = LinkEnd { interface: format!("eth{link}").parse().unwrap(), direction: Direction::Out };
            asked.set_network(end, BitRate::new(1_000)).unwrap();
        }
        let text = serde_json::to_string(&asked).unwrap();
        assert_eq!(serde_json::from_str::<Resources>(&text).unwrap(), asked);
        assert_eq!(asked.set_network(eth0(Direction::In), BitRate::new(1)), Err(TooManyLinks));
        let entry = r#"{"interface":"eth0","direction":"out","rate_bps":1}"#;
        let twice = format!("{{\"network_bps\":[{entry},{entry}]}}");
        assert!(serde_json::from_str::<Resources>(&twice).unwrap_err().to_string().contains("eth0 out is given twice"));
        let long = format!("{{\"network_bps\":[{}]}}", [entry; Resources::MAX_LINKS + 1].join(","));
        assert!(serde_json::from_str::<Resources>(&long).unwrap_err().to_string().contains("16 link"));
    }
}
