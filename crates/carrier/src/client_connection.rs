//! The side that opens a connection.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use qfabric_realm::Tls;
use qfabric_types::channel::Name;

use crate::connection::Connection;
use crate::driver::{Attachment, Connector, Driver};
use crate::handover::{Command, Handover};
use crate::hello::{Answer, Hello};
use crate::options::{Engine, Options, Secured};
use crate::streams::StreamDriver;
use crate::{Error, quic, runtime};

/// A connection that this side opened. It can attach further carriers.
pub struct ClientConnection {
    connection: Connection,
}

/// Where a client connects to, and from where.
#[derive(Clone, Debug)]
pub struct Target {
    pub peer: SocketAddr,
    /// The own address; by default the system chooses it.
    pub local: Option<SocketAddr>,
    /// The service there.
    pub service: Name,
    /// The host that must answer; by default any host on the access list.
    pub host: Option<Name>,
}

impl Target {
    /// The service at `HOST:PORT`.
    ///
    /// # Errors
    /// The text is no address, or the name has none.
    pub fn new(address: &str, service: Name) -> Result<Target, Error> {
        Ok(Target { peer: resolve(address)?, local: None, service, host: None })
    }
}

/// The first address of `HOST:PORT`.
///
/// # Errors
/// The text is no address, or the name has none.
pub fn resolve(address: &str) -> Result<SocketAddr, Error> {
    let text = || address.chars().take(256).collect::<String>();
    let unknown = |why: String| Error::NoAddress { name: text(), why };
    let mut found = address.to_socket_addrs().map_err(|error| match error.kind() {
        // The standard library's answer before it asks the resolver.
        ErrorKind::InvalidInput => Error::Address { text: text(), why: error.to_string() },
        _ => unknown(error.to_string()),
    })?;
    found.next().ok_or_else(|| unknown("the resolver's answer is empty".to_owned()))
}

impl ClientConnection {
    /// Connects, authenticates both sides and opens a session with the service.
    ///
    /// # Errors
    /// No answer in time, a certificate that one side does not accept, or a refusal by the service.
    pub fn open(target: Target, tls: Tls, options: Options) -> Result<ClientConnection, Error> {
        options.check()?;
        let handover = Arc::new(Handover::new(options.memory().get())?);
        let (inner, largest_message) = (handover.clone(), options.largest_message);
        let (peer, _thread) = runtime::start(move || open(target, Secured { tls, options }, inner))?;
        Ok(ClientConnection { connection: Connection { handover, peer, largest_message } })
    }

    /// Makes another carrier to the same service, over the address `peer`. It carries nothing until it is
    /// [selected](Connection::select). Returns its number.
    ///
    /// # Errors
    /// As [`ClientConnection::open`]; nothing was changed.
    pub fn attach(&self, local: Option<SocketAddr>, peer: SocketAddr, within: Duration) -> Result<u32, Error> {
        self.connection.ask(within, |reply| Command::Attach { local, peer, reply })
    }

    /// Replaces all carriers by a new one while messages flow. Returns its number.
    ///
    /// # Errors
    /// The new carrier cannot be made; the old ones go on.
    pub fn replace(&self, local: Option<SocketAddr>, peer: SocketAddr, within: Duration) -> Result<u32, Error> {
        let new = self.attach(local, peer, within)?;
        self.select(new, new)?;
        for old in self.statistics().carriers.iter().filter(|carrier| carrier.carrier != new) {
            self.detach(old.carrier)?;
        }
        Ok(new)
    }
}

impl Deref for ClientConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

async fn open(
    target: Target,
    secured: Secured,
    handover: Arc<Handover>,
) -> Result<(Name, impl Future<Output = ()>), Error> {
    let hello = Hello::Open { service: target.service, engine: secured.options.engine };
    let greeted = quic::connect(&secured, target.local, target.peer, target.host.as_ref(), &hello).await?;
    let Answer::Opened { session } = greeted.answer else {
        return Err(Error::Handshake { address: target.peer, why: "it answered another question".to_owned() });
    };
    let (peer, tag) = (greeted.path.host.clone(), session.tag());
    let options = secured.options.clone();
    if options.engine == Engine::Streams {
        let driver = StreamDriver::new(&options, handover, greeted.path);
        return Ok((peer, Either::Streams(Box::new(driver)).run()));
    }
    let connector = Connector { expected: peer.clone(), session, secured };
    let mut driver = Driver::new(&options, tag, handover, Some(connector))?;
    driver.attach_connection(Attachment { path: Ok(greeted.path), reply: None });
    Ok((peer, Either::Metp(Box::new(driver)).run()))
}

/// The task of a connection.
enum Either {
    Metp(Box<Driver>),
    Streams(Box<StreamDriver>),
}

impl Either {
    async fn run(self) {
        match self {
            Either::Metp(driver) => driver.run().await,
            Either::Streams(driver) => driver.run().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_address_and_a_name_without_an_address_are_different_errors() {
        for text in ["wall", "wall:port", "wall:70000"] {
            assert!(matches!(resolve(text), Err(Error::Address { .. })), "{text}");
        }
        // A label has at most 63 characters, so the resolver asks nobody.
        let name = format!("{}:7800", "x".repeat(64));
        let unknown = resolve(&name).unwrap_err();
        assert!(matches!(unknown, Error::NoAddress { .. }) && unknown.to_string().contains(&name), "{unknown}");
        assert_eq!(resolve("192.0.2.7:7800").unwrap().port(), 7_800);
    }
}
