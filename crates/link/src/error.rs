//! What can be wrong with a host's connection to others.

use std::path::PathBuf;

use crate::Address;

/// Why there is no connection, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an address.
    #[error("{0:?} is no address: write HOST:PORT (like 192.0.2.7:7700 or [fd00::7]:7700) or unix:/PATH")]
    Address(String),
    /// Without authentication only this machine may be reached.
    #[error(
        "{0} is not on this machine's loopback, and without certificates nothing else is used: \
         make some with `qfabric channel init-ca` and `qfabric channel issue`"
    )]
    Insecure(Address),
    /// The engine has no encryption.
    #[error("the plain engine knows no certificates: use the engine zenoh, or none of them and loopback only")]
    PlainTls,
    /// The engine does not reach that.
    #[error("zenoh does not use Unix sockets here: {0} needs the engine plain")]
    UnixZenoh(Address),
    /// Zenoh takes two ports.
    #[error("{0}: zenoh takes this port and the next one, so it has to be 1 to 65534")]
    Ports(Address),
    /// Cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: Address,
        /// Why not.
        source: std::io::Error,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A certificate or key that is not what it should be.
    #[error("{}: {reason}", path.display())]
    Certificate {
        /// Of which file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// An access list that cannot be used.
    #[error("access list {}: {reason}", path.display())]
    Access {
        /// Of which file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The program was built without the feature `zenoh`.
    #[error(
        "this program was built without the engine zenoh: build it with `cargo build --release -p qfabric-cli`, \
         or write `engine = \"tcp\"` under [channels], which connects hosts of one machine only"
    )]
    WithoutZenoh,
    /// Zenoh said no.
    #[error("zenoh: {0}")]
    Zenoh(String),
}

impl Error {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { what, source }
    }
}
