//! The options that say how pictures travel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use qfabric_conference::Identity;
use qfabric_types::channel::Name;

/// Where a server listens if nothing else is said.
pub(crate) const PORT: &str = "7800";

#[derive(clap::Args)]
pub(crate) struct Transport {
    /// How pictures travel; the server and its receivers need the same transport. Reports and levels are always events
    #[arg(long, value_name = "NAME", default_value = "channel")]
    transport: TransportName,
    /// With --transport metp: folder with ca.pem, HOST.pem, HOST.key and access.toml, as qfabric channel issue writes
    /// it
    #[arg(long, value_name = "FOLDER", env = "QFABRIC_TLS")]
    tls: Option<PathBuf>,
    /// With --transport metp: name of this host in its certificate [default: the name that its daemon has]
    #[arg(long, value_name = "NAME")]
    tls_host: Option<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TransportName {
    /// As events of the channel
    Channel,
    /// Over METP: a connection to each receiver, whose sender drops late pictures
    Metp,
}

impl Transport {
    /// The certificate, if pictures travel over METP.
    pub(crate) fn identity(&self) -> Result<Option<Identity>> {
        if self.transport == TransportName::Channel {
            return Ok(None);
        }
        let missing = "--transport metp needs --tls FOLDER: this host's folder of `qfabric channel issue`";
        Ok(Some(Identity { folder: self.tls.clone().context(missing)?, host: self.tls_host.clone() }))
    }
}

/// `PORT`, or `ADDRESS:PORT`.
pub(crate) fn listen(text: &str) -> Result<SocketAddr> {
    match text.parse::<u16>() {
        Ok(port) => {
            // A socket of IPv6 also takes packets of IPv4; a host may have no IPv6.
            let has_v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
            let all: IpAddr = if has_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            Ok(SocketAddr::new(all, port))
        }
        Err(_) => qfabric_carrier::resolve(text).map_err(|error| anyhow!("--listen: {}", error.problem())),
    }
}

/// Where the server of a host is reached; `given` says it, if the port or the name is another one.
pub(crate) fn server(given: Option<&String>, host: &str) -> String {
    given.cloned().unwrap_or_else(|| format!("{host}:{PORT}"))
}
