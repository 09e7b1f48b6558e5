//! Errors of a host's connection to the network.

use qfabric_types::api::Problem;

use crate::Address;

/// Why the network cannot be used, with the next step.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum Error {
    /// A text that is not an address.
    Address(String),
    /// Without authentication only addresses of this machine are allowed.
    Insecure(Address),
    /// The plain engine has no encryption.
    PlainTls,
    /// Zenoh is not used with Unix sockets.
    UnixZenoh(Address),
    /// Zenoh uses two ports.
    Ports(Address),
    /// An address cannot be listened on.
    Listen { address: Address, source: std::io::Error },
    /// The operating system refused an operation.
    Io {
        /// The operation.
        what: &'static str,
        source: std::io::Error,
    },
    /// A file of the realm cannot be used.
    Realm(#[from] qfabric_realm::Error),
    /// The program was built without the feature `zenoh`.
    WithoutZenoh,
    /// An error of Zenoh.
    Zenoh(String),
}

impl Error {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { what, source }
    }

    /// The message and the next step.
    pub fn problem(&self) -> Problem {
        let (code, message, next_step) = match self {
            Error::Realm(error) => return error.problem(),
            Error::Address(text) => (
                "bad_address",
                format!("{text:?} is not an address"),
                "write HOST:PORT (like 192.0.2.7:7700 or [fd00::7]:7700) or unix:/PATH",
            ),
            Error::Insecure(address) => (
                "no_certificates",
                format!(
                    "{address} is not on this machine's loopback, and without certificates no other address is allowed"
                ),
                "make certificates with `qfabric channel init-ca` and `qfabric channel issue`",
            ),
            Error::PlainTls => (
                "plain_engine",
                "the plain engine does not support certificates".to_owned(),
                "use the engine zenoh, or remove the certificates and use loopback only",
            ),
            Error::UnixZenoh(address) => (
                "bad_address",
                format!("the engine zenoh does not support the Unix socket {address}"),
                "write HOST:PORT, or use the plain engine",
            ),
            Error::Ports(address) => (
                "bad_address",
                format!("{address}: zenoh uses this port and the next one"),
                "choose a port of 1 to 65534",
            ),
            Error::Listen { address, source } => (
                "cannot_listen",
                format!("cannot listen on {address}: {source}"),
                "check that this host has the address, and that no other program listens there",
            ),
            Error::Io { what, source } => {
                ("io", format!("cannot {what}: {source}"), "check the limits of this process, then try again")
            }
            Error::WithoutZenoh => (
                "without_zenoh",
                "this program was built without the engine zenoh".to_owned(),
                "build it with `cargo build --release -p qfabric-cli`, or write `engine = \"tcp\"` under [channels], \
                 which connects hosts of one machine only",
            ),
            Error::Zenoh(why) => {
                ("zenoh", format!("zenoh: {why}"), "check the addresses under [channels], and the certificates")
            }
        };
        Problem::new(code, message, next_step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_value_and_the_next_step_apart() {
        let problem = "nowhere".parse::<Address>().unwrap_err().problem();
        assert_eq!((problem.code.as_str(), problem.message.as_str()), ("bad_address", "\"nowhere\" is not an address"));
        assert!(problem.next_step.starts_with("write HOST:PORT"), "{problem:?}");
        let address: Address = "192.0.2.7:7700".parse().unwrap();
        let source = std::io::ErrorKind::AddrInUse.into();
        let error = Error::Listen { address, source };
        let problem = error.problem();
        assert!(problem.message.contains("192.0.2.7:7700") && !problem.next_step.is_empty(), "{problem:?}");
        assert_eq!(error.to_string(), problem.to_string());
        let realm = qfabric_realm::Error::WithoutCertificates;
        assert_eq!(realm.problem(), Error::from(realm).problem());
    }
}
