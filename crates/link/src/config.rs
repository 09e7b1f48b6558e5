//! The network configuration of a host: its name, addresses, peers, and security.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use qfabric_realm::Tls;
use qfabric_types::channel::Name;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The address of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// TCP. Zenoh uses two ports: this one for control, the next one for data.
    Tcp {
        /// An IP address or a host's name.
        host: String,
        /// With zenoh at most 65534, because zenoh also uses the next port.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Whether the address can only be reached from this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp { host, .. } => host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address, Error> {
        let bad = || Error::Address(text.chars().take(256).collect());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') { Ok(Address::Unix(path.into())) } else { Err(bad()) };
        }
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Ok(Address::from(socket));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let host: Name = host.parse().map_err(|_| bad())?;
        Ok(Address::Tcp { host: host.to_string(), port: port.parse().map_err(|_| bad())? })
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Address {
        Address::Tcp { host: socket.ip().to_string(), port: socket.port() }
    }
}

impl TryFrom<String> for Address {
    type Error = Error;

    fn try_from(text: String) -> Result<Address, Error> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Between machines.
    #[default]
    Zenoh,
    /// Sockets without encryption, within one machine.
    Plain,
}

/// A host's role in the network. The plain engine has peers only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Connects directly to all hosts of its site.
    #[default]
    Peer,
    /// Also relays between the hosts that are connected to it: one router per site, if there are several sites.
    Router,
}

/// How a host finds other hosts besides the configured peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scouting {
    /// No search.
    #[default]
    Configured,
    /// Peers exchange the addresses of the hosts they are connected to, so one common address is enough. Two hosts that
    /// receive each other's address at the same moment may both connect. Zenoh 1.10 may then lose declarations of one
    /// of them, and the two hosts do not see each other until one restarts. Do not use this for hosts that are
    /// configured as each other's peers.
    Gossip,
    /// Like `Gossip`, and also by multicast on the local network.
    Multicast,
}

/// Whether hosts have to authenticate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// No authentication: loopback and Unix sockets only.
    #[default]
    Insecure,
    /// Mutual TLS; the access list decides the rights of each certificate.
    Tls(Box<Tls>),
}

/// The kernel's buffers of each data connection, in bytes; 0: the kernel chooses, and changes its choice with the rate.
/// The kernel bounds both numbers (`net.core.wmem_max`, `net.core.rmem_max`). The plain engine ignores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// The data that a slow link delays before further frames are dropped and counted: behind 400 kbit/s at most 3 s
    /// with the default; with the kernel's own choice 16 s and growing. A link with a delay of 20 ms carries at most this
    /// amount in 10 ms: 50 Mbit/s with the default.
    pub send: u32,
    /// One thread reads all connections, each until it is empty, so a control frame may wait for this amount while a
    /// peer floods: about 0.2 ms with the default.
    pub receive: u32,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers { send: 64 << 10, receive: 256 << 10 }
    }
}

/// The network configuration of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This host's name.
    pub host: Name,
    /// The realm. Hosts of other realms are not seen, even on the same network.
    pub realm: Name,
    pub engine: EngineKind,
    pub role: Role,
    /// The addresses on which this host accepts connections.
    pub listen: Vec<Address>,
    /// The addresses to which this host connects; it tries until it succeeds. A list that contains an address of this
    /// host is taken as the list of all hosts: then of each two hosts the one with the smaller address connects, so
    /// that they do not both connect.
    pub peers: Vec<Address>,
    /// The search for other hosts. The plain engine does not search.
    pub scouting: Scouting,
    pub security: Security,
    pub buffers: Buffers,
}

impl Config {
    /// A host of the realm `default` that neither listens nor connects.
    pub fn new(host: Name) -> Config {
        Config {
            host,
            realm: "default".parse().expect("is a name"),
            engine: EngineKind::Zenoh,
            role: Role::Peer,
            listen: Vec::new(),
            peers: Vec::new(),
            scouting: Scouting::Configured,
            security: Security::Insecure,
            buffers: Buffers::default(),
        }
    }

    /// Whether a network that was opened with one configuration is the same as if it had been opened with the other.
    /// Some rights of an access list are checked by this host alone ([`qfabric_realm::Right`]); others are also
    /// checked by the engine, which reads them when it opens.
    pub fn opens_like(&self, other: &Config) -> bool {
        let print = |config: &Config| match &config.security {
            Security::Insecure => None,
            Security::Tls(tls) => Some(tls.print),
        };
        print(self) == print(other) && crate::zenoh::is_same(self, other)
    }

    pub(crate) fn calls(&self) -> Vec<Address> {
        let own = self.peers.iter().find(|peer| self.listen.contains(peer));
        self.peers.iter().filter(|peer| own.is_none_or(|own| *peer > own)).cloned().collect()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let addresses = || self.listen.iter().chain(&self.peers);
        let unix = addresses().find(|address| matches!(address, Address::Unix(_)));
        let remote = addresses().find(|address| !address.is_local());
        match (&self.security, self.engine, unix, remote) {
            (Security::Tls(_), EngineKind::Plain, _, _) => Err(Error::PlainTls),
            (_, EngineKind::Zenoh, Some(unix), _) => Err(Error::UnixZenoh(unix.clone())),
            (Security::Insecure, _, _, Some(remote)) => Err(Error::Insecure(remote.clone())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_was_written() {
        for text in ["192.0.2.7:7700", "[fd00::7]:7700", "host-1.lan:1", "unix:/run/x.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "host", "host:", ":1", "host:70000", "unix:x", "a/b:1", "tcp/1.2.3.4:5"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn of_two_hosts_with_the_same_list_one_calls() {
        let list: Vec<Address> = ["127.0.0.2:1", "127.0.0.1:1", "127.0.0.3:1"].map(|text| text.parse().unwrap()).into();
        let mut calls = 0;
        for own in &list {
            let mut config = Config::new("a".parse().unwrap());
            config.peers = list.clone();
            assert_eq!(config.calls(), list, "a host that is not on it calls all");
            config.listen = vec![own.clone()];
            calls += config.calls().len();
        }
        assert_eq!(calls, 3);
    }

    #[test]
    fn without_certificates_only_loopback_is_used() {
        let mut config = Config::new("a".parse().unwrap());
        config.listen = vec!["127.0.0.1:7700".parse().unwrap(), "[::1]:7700".parse().unwrap()];
        config.check().unwrap();
        for address in ["0.0.0.0:7700", "192.0.2.7:7700", "example.org:7700"] {
            config.peers = vec![address.parse().unwrap()];
            let said = config.check().unwrap_err().to_string();
            assert!(said.contains(address) && said.contains("init-ca"), "{said}");
        }
    }
}
