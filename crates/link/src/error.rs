//! Errors of a host's connection to the network.

use crate::Address;

/// Why the network cannot be used, with the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A text that is not an address.
    #[error("{0:?} is not an address: write HOST:PORT (like 192.0.2.7:7700 or [fd00::7]:7700) or unix:/PATH")]
    Address(String),
    /// Without authentication only addresses of this machine are allowed.
    #[error(
        "{0} is not on this machine's loopback, and without certificates no other address is allowed: \
         make certificates with `qfabric channel init-ca` and `qfabric channel issue`"
    )]
    Insecure(Address),
    /// The plain engine has no encryption.
    #[error(
        "the plain engine does not support certificates: use the engine zenoh, or remove the certificates and use loopback only"
    )]
    PlainTls,
    /// Zenoh is not used with Unix sockets.
    #[error("the engine zenoh does not support Unix sockets: {0} needs the engine plain")]
    UnixZenoh(Address),
    /// Zenoh uses two ports.
    #[error("{0}: zenoh uses this port and the next one, so the port must be 1 to 65534")]
    Ports(Address),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: Address, source: std::io::Error },
    /// The operating system refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        source: std::io::Error,
    },
    /// A file of the realm cannot be used.
    #[error(transparent)]
    Realm(#[from] qfabric_realm::Error),
    /// The program was built without the feature `zenoh`.
    #[error(
        "this program was built without the engine zenoh: build it with `cargo build --release -p qfabric-cli`, \
         or write `engine = \"tcp\"` under [channels], which connects hosts of one machine only"
    )]
    WithoutZenoh,
    /// An error of Zenoh.
    #[error("zenoh: {0}")]
    Zenoh(String),
}

impl Error {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { what, source }
    }
}
