//! Errors of connections.

use std::net::SocketAddr;
use std::time::Duration;

use qfabric_types::api::Problem;

/// Why a connection cannot be made or used, with the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the realm cannot be used.
    #[error(transparent)]
    Realm(#[from] qfabric_realm::Error),
    /// A text that is not an address.
    #[error("{text:?} is not an address: {why}")]
    Address { text: String, why: String },
    /// A name without an address, as far as this host's resolver knows. It may be a passing failure of the resolver.
    #[error("no address is known for {name:?}: {why}")]
    NoAddress { name: String, why: String },
    /// An option outside its range.
    #[error("{option} is {value}; allowed are {allowed}")]
    Option { option: &'static str, value: String, allowed: &'static str },
    /// An empty message, or one above the admitted size.
    #[error(transparent)]
    Message(qfabric_metp::SendRefusal),
    /// The operating system refused an operation.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// Nothing answered.
    #[error("{address} did not answer within {} ms", within.as_millis())]
    NoAnswer { address: SocketAddr, within: Duration },
    /// The handshake failed.
    #[error("{address}: {why}")]
    Handshake { address: SocketAddr, why: String },
    /// The other side has a certificate of the realm, but it is not the wanted host, or not on the access list.
    #[error("{address} is {found}: {why}")]
    Stranger { address: SocketAddr, found: String, why: String },
    /// The other side, or this one, refused the request.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// No daemon reserves the rate.
    #[error(transparent)]
    Daemon(Box<qfabric_client::ClientError>),
    /// The stored profile of delays cannot be used.
    #[error(transparent)]
    Profile(Box<qfabric_client::ClientError>),
    /// The time of a call is over; nothing was changed.
    #[error("{what} took longer than {} ms", within.as_millis())]
    TimeOut { what: &'static str, within: Duration },
    /// The connection has ended.
    #[error("the connection has ended: {0}")]
    Ended(crate::End),
    /// The handle belongs to the parent of this forked process, and stays in use there.
    #[error("{what} belongs to the parent of this forked process")]
    Forked { what: &'static str },
    /// Plain UDP is for the laboratory.
    #[error("plain UDP between {local} and {peer} is neither encrypted nor authenticated")]
    PlainUdp { local: SocketAddr, peer: SocketAddr },
}

impl Error {
    /// The refusal for a user.
    pub fn problem(&self) -> Problem {
        let (code, next_step) = match self {
            Error::Realm(error) => return error.problem(),
            Error::Refused(problem) => return (**problem).clone(),
            Error::Message(refusal) => return refusal.problem(),
            Error::Daemon(error) => return error.problem(),
            Error::Profile(error) => return Problem { code: "no_delay_profile".to_owned(), ..error.problem() },
            Error::Address { .. } => ("bad_address", "write HOST:PORT, such as 192.0.2.7:7800 or [fd00::7]:7800"),
            Error::NoAddress { .. } => {
                ("no_address", "check the name and the resolver of this host, or write an address")
            }
            Error::Option { .. } => ("bad_option", "choose a value in this range"),
            Error::Io { .. } => ("io", "check the address and this host's network"),
            Error::NoAnswer { .. } => {
                ("no_answer", "check that `qfabric metp recv` or a server listens there, and the firewall (UDP)")
            }
            Error::Handshake { .. } => ("handshake", "compare the certificates of both hosts"),
            Error::Stranger { .. } => ("stranger", "check the address, and `hosts` in access.toml"),
            Error::TimeOut { .. } => ("time_out", "try again, or allow more time"),
            Error::Ended(_) => ("ended", "open another connection"),
            Error::Forked { .. } => ("forked", "open another one in this process"),
            Error::PlainUdp { .. } => ("plain_udp", "use certificates, addresses of loopback, or name the laboratory"),
        };
        Problem::new(code, self.to_string(), next_step)
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { what: what.into(), source }
    }
}
