//! How a host takes part: its name, where it listens, whom it calls, whom it trusts.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use qfabric_types::channel::Name;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Where a host is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// By TCP. Zenoh takes two ports: this one for control, the next one for data.
    Tcp {
        /// An IP address or a host's name.
        host: String,
        /// The port; with zenoh below 65,535.
        port: u16,
    },
    /// By a Unix socket at that path.
    Unix(PathBuf),
}

impl Address {
    /// Whether nothing beyond this machine is reached by it.
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

/// Which network engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Between machines.
    #[default]
    Zenoh,
    /// Sockets and nothing else, within one machine.
    Plain,
}

/// A host's place in the network. The plain engine knows peers only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Talks to all hosts of its site directly.
    #[default]
    Peer,
    /// Also relays between the hosts that are connected to it: one per site, for more than one site.
    Router,
}

/// How hosts find each other beyond the configured peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scouting {
    /// Not at all.
    #[default]
    Configured,
    /// Peers tell each other of those they know: one address in common is enough. Two hosts that are told of each other
    /// in the same moment may both call, and Zenoh 1.10 may then lose what one of them has declared: the two do not see
    /// each other until one of them starts again. Not for hosts that are configured as each other's peers.
    Gossip,
    /// Also by multicast on the local network; the same goes for it.
    Multicast,
}

/// Who this host is to others and whom it believes. Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate of the authority that all hosts share.
    pub ca: PathBuf,
    /// This host's certificate; its name is the host's.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// What is in these three files, in short: others are other certificates.
    pub print: u64,
    /// Who may do what; default-deny.
    pub access: crate::security::Access,
}

/// Whether others have to prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// Nobody proves anything: loopback and Unix sockets only.
    #[default]
    Insecure,
    /// Both sides show a certificate, and the access list says what it is good for.
    Tls(Box<Tls>),
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This host.
    pub host: Name,
    /// Hosts of another realm are not seen, though they may share the network.
    pub realm: Name,
    /// The engine.
    pub engine: EngineKind,
    /// Peer or router.
    pub role: Role,
    /// Where others reach this host.
    pub listen: Vec<Address>,
    /// Whom it calls, again and again until they are there. With its own address among them, the list is taken to be
    /// that of all hosts: of each two, the one of the smaller address calls, so that no two call each other.
    pub peers: Vec<Address>,
    /// Whom it finds by itself. The plain engine finds nobody.
    pub scouting: Scouting,
    /// Whom it believes.
    pub security: Security,
}

impl Config {
    /// A host of the realm `default` that neither listens nor calls.
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
        }
    }

    /// Whether a network that was opened by one is as if it had been opened by the other: of access lists, some rights are
    /// held by this host alone ([`crate::security::Right`]), others by the engine, too, from its opening on.
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
