//! The side that connects.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use qfabric_realm::{Access, host_of};
use qfabric_types::channel::Name;
use quinn::{Connection, Endpoint, EndpointConfig};
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use super::rate::Governor;
use super::{Authenticated, config, failure, marking};
use crate::Error;
use crate::hello::{Answer, Hello, MOST_BYTES, decode, encode};
use crate::options::Secured;

/// The name in the handshake; names are checked against the access list instead.
const NAME: &str = "qfabric";

/// A connection whose other side has agreed to the request.
pub(crate) struct Greeted {
    pub(crate) path: Authenticated,
    pub(crate) answer: Answer,
}

/// Connects and asks. The other side must be on the access list, and the host `expected` if one is named.
///
/// # Errors
/// No answer in time, a certificate that is not accepted, another host, or a refusal.
pub(crate) async fn connect(
    secured: &Secured,
    local: Option<SocketAddr>,
    peer: SocketAddr,
    expected: Option<&Name>,
    hello: &Hello,
) -> Result<Greeted, Error> {
    let within = secured.options.handshake_time;
    let late = |_| Error::NoAnswer { address: peer, within };
    let path = timeout(within, authenticate(secured, local, peer, expected)).await.map_err(late)??;
    let answer = timeout(within, greet(&path.connection, hello)).await.map_err(late)?;
    match answer.map_err(|error| error.of(peer, within))? {
        Answer::Refused(problem) => Err(Error::Refused(problem)),
        answer => Ok(Greeted { path, answer }),
    }
}

/// The handshake and the checks of the other side's identity.
pub(super) async fn authenticate(
    secured: &Secured,
    local: Option<SocketAddr>,
    peer: SocketAddr,
    expected: Option<&Name>,
) -> Result<Authenticated, Error> {
    let governor = Arc::<Governor>::default();
    let config = config::client(secured, &governor)?;
    let socket = config::socket(local.unwrap_or_else(|| route_to(peer)))?;
    let io = || Error::io("cannot use the socket");
    let runtime = marking::runtime(secured.options.dscp);
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime).map_err(io())?;
    let bad = |error: quinn::ConnectError| Error::Address { text: peer.to_string(), why: error.to_string() };
    let connecting = endpoint.connect_with(config, peer, NAME).map_err(bad)?;
    let connection =
        connecting.await.map_err(|error| failure::explain(peer, &error, secured.options.handshake_time))?;
    let host = peer_of(&connection).ok_or_else(|| stranger(peer, None, "its certificate names no host"))?;
    check_peer(&secured.tls.access, peer, &host, expected)?;
    Ok(Authenticated { connection, endpoint, governor, host })
}

fn check_peer(access: &Access, peer: SocketAddr, host: &Name, expected: Option<&Name>) -> Result<(), Error> {
    if expected.is_some_and(|expected| expected != host) {
        let why = format!("the wanted host is {}", expected.map_or("", |name| name.as_str()));
        return Err(stranger(peer, Some(host), &why));
    }
    if !access.hosts.contains(host) {
        return Err(stranger(peer, Some(host), &format!("it is not among `hosts` in {}", access.path.display())));
    }
    Ok(())
}

fn stranger(address: SocketAddr, host: Option<&Name>, why: &str) -> Error {
    let found = host.map_or_else(|| "nobody".to_owned(), |host| format!("the host {host}"));
    Error::Stranger { address, found, why: why.to_owned() }
}

/// The host in the other side's certificate.
pub(super) fn peer_of(connection: &Connection) -> Option<Name> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    host_of(chain.first()?)
}

/// The own address from which the kernel sends to `peer`. A reservation selects packets by it.
fn route_to(peer: SocketAddr) -> SocketAddr {
    let any = any_address(peer);
    let routed = UdpSocket::bind(any).and_then(|socket| socket.connect(peer).and_then(|()| socket.local_addr()));
    routed.map_or(any, |own| SocketAddr::new(own.ip(), 0))
}

fn any_address(peer: SocketAddr) -> SocketAddr {
    match peer.ip() {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

enum GreetError {
    Lost(quinn::ConnectionError),
    Unreadable(String),
}

impl GreetError {
    fn of(self, address: SocketAddr, within: std::time::Duration) -> Error {
        match self {
            // A client's certificate is refused only after its own side of the handshake is complete.
            GreetError::Lost(error) => failure::explain(address, &error, within),
            GreetError::Unreadable(why) => Error::Handshake { address, why },
        }
    }
}

async fn greet(connection: &Connection, hello: &Hello) -> Result<Answer, GreetError> {
    let (mut send, mut receive) = connection.open_bi().await.map_err(GreetError::Lost)?;
    let lost = |why: String| connection.close_reason().map_or_else(|| GreetError::Unreadable(why), GreetError::Lost);
    send.write_all(&encode(hello)).await.map_err(|error| lost(error.to_string()))?;
    // An error means that the connection is lost; reading says why.
    let _ = send.finish();
    let text = receive.read_to_end(MOST_BYTES + 2).await.map_err(|error| lost(error.to_string()))?;
    let text = text.get(2..).unwrap_or_default();
    decode(text).map_err(|problem| GreetError::Unreadable(problem.to_string()))
}
