//! The options with which a host proves its identity.

use std::path::PathBuf;

use qfabric_carrier::{Engine, Options, Tls};
use qfabric_types::channel::Name;

use super::failure;
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
pub(super) struct Identity {
    /// Folder with ca.pem, HOST.pem, HOST.key and access.toml, as qfabric channel issue writes it
    #[arg(long, value_name = "FOLDER", env = "QFABRIC_TLS")]
    tls: PathBuf,
    /// Name of this host in its certificate [default: the host name of the machine]
    #[arg(long, value_name = "NAME")]
    host: Option<Name>,
    /// Name of the service: the receiver offers it, and its access list gives senders the right `connect` on it
    #[arg(long, value_name = "NAME", default_value = "metp")]
    pub(super) service: Name,
    /// Largest UDP payload in bytes that is tried on the path, 1200 to 9000
    #[arg(long, value_name = "BYTES", default_value_t = Options::ETHERNET_MTU)]
    pub(super) mtu: u16,
}

/// How messages travel over QUIC.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(super) enum EngineName {
    /// METP in QUIC datagrams
    #[default]
    Metp,
    /// A QUIC stream for each message, reset at the message's deadline
    Streams,
}

impl From<EngineName> for Engine {
    fn from(name: EngineName) -> Engine {
        match name {
            EngineName::Metp => Engine::Metp,
            EngineName::Streams => Engine::Streams,
        }
    }
}

impl Identity {
    /// The certificate, the key and the access list.
    pub(super) fn tls(&self) -> Result<Tls, Failure> {
        let own = || rustix::system::uname().nodename().to_string_lossy().parse::<Name>();
        let host = match &self.host {
            Some(host) => host.clone(),
            None => own().map_err(|error| {
                Failure::usage(format!("the host name of this machine is no name of a host: {error}\ntry: --host NAME"))
            })?,
        };
        let tls = Tls::from_folder(&self.tls, &host, &self.tls.join("access.toml"));
        tls.map_err(|error| failure(&error.into()))
    }
}
