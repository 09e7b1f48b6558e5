//! Finds out why an address cannot be reached: makes a connection only to see its error.

use std::io::{ErrorKind, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use qfabric_realm as realm;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, DEFAULT_VERSIONS, StreamOwned};

use crate::{Address, Tls};

/// For connecting, and for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Connects, shows the certificate, and waits a moment for a refusal.
///
/// # Errors
/// The obstacle and the next step, for users.
pub(crate) fn probe(address: &Address, tls: Option<&Tls>) -> Result<(), String> {
    let Address::Tcp { host, port } = address else { return Ok(()) };
    let found = (host.as_str(), *port).to_socket_addrs().ok().and_then(|mut all| all.next());
    let found = found.ok_or_else(|| format!("the name {host} has no address: check its spelling"))?;
    let socket = TcpStream::connect_timeout(&found, PATIENCE).map_err(|error| {
        format!(
            "{error}: check that the daemon there runs with this address in `listen`, and that no firewall is in between"
        )
    })?;
    match tls {
        Some(tls) => shake_hands(socket, tls).map_err(explain),
        None => Ok(()),
    }
}

fn shake_hands(socket: TcpStream, tls: &Tls) -> Result<(), Obstacle> {
    let local = |error: String| Obstacle::Local(error);
    socket.set_read_timeout(Some(PATIENCE)).map_err(|error| local(error.to_string()))?;
    let config = realm::client_config(tls, DEFAULT_VERSIONS).map_err(|error| local(error.to_string()))?;
    // The server's name is not checked here, so any name will do.
    let name = ServerName::try_from("host").expect("is a name");
    let connection = ClientConnection::new(Arc::new(config), name).map_err(|error| local(error.to_string()))?;
    match StreamOwned::new(connection, socket).read(&mut [0]) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
        Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(refusal) => Err(Obstacle::Tls(refusal.clone())),
            // The other side closed the connection without an alert, as Zenoh does with a silent connection.
            None => Ok(()),
        },
        Ok(_) => Ok(()),
    }
}

enum Obstacle {
    Local(String),
    Tls(rustls::Error),
}

fn explain(obstacle: Obstacle) -> String {
    match obstacle {
        Obstacle::Local(why) => why,
        Obstacle::Tls(error) => realm::explain(&error),
    }
}
