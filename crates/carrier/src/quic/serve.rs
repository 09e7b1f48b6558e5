//! The side that is connected to: accepts handshakes within bounds, and reads what each client wants.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Connecting, Connection, Endpoint, EndpointConfig, Incoming, SendStream, TokioRuntime};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::bounds::{Bounds, Verdict};
use super::connect::peer_of;
use super::rate::Governor;
use super::{Authenticated, config};
use crate::Error;
use crate::hello::{Answer, Hello, MOST_BYTES, decode, encode};
use crate::options::{Options, Secured};

/// Clients that wait for the service's answer.
const MOST_WAITING: usize = 16;
/// The longest time for the answer: a client may allow this side to send nothing on the stream.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// A client that has proved its identity and said what it wants.
pub(crate) struct Arrival {
    pub(crate) path: Authenticated,
    pub(crate) hello: Hello,
    answer: SendStream,
}

impl Arrival {
    /// Answers. The stream ends; media may flow.
    pub(crate) async fn answer(mut self, answer: &Answer) -> Authenticated {
        if timeout(ANSWER_TIME, self.answer.write_all(&encode(answer))).await.is_err() {
            self.path.connection.close(0u32.into(), b"the answer is not taken");
        }
        // A client that is gone is noticed by its carrier.
        let _ = self.answer.finish();
        if matches!(answer, Answer::Refused(_)) {
            // The client reads the answer, then closes.
            let _ = timeout(Duration::from_secs(1), self.path.connection.closed()).await;
            self.path.connection.close(0u32.into(), b"refused");
        }
        self.path
    }
}

/// Listens on an address.
pub(crate) struct Door {
    endpoint: Endpoint,
    crypto: Arc<QuicServerConfig>,
    options: Options,
    bounds: Rc<RefCell<Bounds>>,
    arrivals: mpsc::Sender<Arrival>,
}

impl Door {
    /// Must be called in a runtime.
    pub(crate) fn open(secured: &Secured, local: SocketAddr) -> Result<(Door, mpsc::Receiver<Arrival>), Error> {
        let crypto = config::server_crypto(secured)?;
        let first = config::server(crypto.clone(), &secured.options, &Arc::default());
        let socket = config::socket(local)?;
        let endpoint = Endpoint::new(EndpointConfig::default(), Some(first), socket, Arc::new(TokioRuntime))
            .map_err(Error::io(format!("cannot listen on {local}")))?;
        let (arrivals, waiting) = mpsc::channel(MOST_WAITING);
        let bounds = Rc::default();
        Ok((Door { endpoint, crypto, options: secured.options.clone(), bounds, arrivals }, waiting))
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, Error> {
        self.endpoint.local_addr().map_err(Error::io("cannot read the own address"))
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Accepts until the endpoint is closed. Must run in a `LocalSet`.
    pub(crate) async fn run(self) {
        while let Some(incoming) = self.endpoint.accept().await {
            let address = incoming.remote_address().ip();
            let is_proved = incoming.remote_address_validated();
            let verdict = self.bounds.borrow_mut().judge(address, is_proved, Instant::now());
            match verdict {
                Verdict::Accept => self.accept(incoming),
                // An address that is proved already is never asked again.
                Verdict::Retry => drop(incoming.retry()),
                Verdict::Refuse => incoming.refuse(),
            }
        }
    }

    fn accept(&self, incoming: Incoming) {
        let governor = Arc::<Governor>::default();
        let address = incoming.remote_address().ip();
        let config = config::server(self.crypto.clone(), &self.options, &governor);
        let Ok(connecting) = incoming.accept_with(Arc::new(config)) else { return };
        self.bounds.borrow_mut().begin(address);
        let (bounds, arrivals) = (self.bounds.clone(), self.arrivals.clone());
        let (endpoint, within) = (self.endpoint.clone(), self.options.handshake_time);
        tokio::task::spawn_local(async move {
            let shaken = timeout(within, shake(connecting, endpoint, governor)).await;
            bounds.borrow_mut().shaken(address);
            if let Ok(Some(arrival)) = shaken {
                let connection = arrival.path.connection.clone();
                if arrivals.try_send(arrival).is_err() {
                    connection.close(0u32.into(), b"too many clients wait");
                }
                connection.closed().await;
            }
            bounds.borrow_mut().end(address);
        });
    }
}

/// The handshake and the client's first message.
async fn shake(connecting: Connecting, endpoint: Endpoint, governor: Arc<Governor>) -> Option<Arrival> {
    let peer = connecting.remote_address();
    let connection = match connecting.await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::info!(%peer, %error, "a handshake failed");
            return None;
        }
    };
    let host = peer_of(&connection)?;
    let path = Authenticated { connection: connection.clone(), endpoint, governor, host };
    match ask(&connection).await {
        Ok((hello, answer)) => Some(Arrival { path, hello, answer }),
        Err(why) => {
            tracing::info!(%peer, host = %path.host, why, "a client's first message is refused");
            connection.close(0u32.into(), b"the first message cannot be read");
            None
        }
    }
}

async fn ask(connection: &Connection) -> Result<(Hello, SendStream), String> {
    let (answer, mut receive) = connection.accept_bi().await.map_err(|error| error.to_string())?;
    let text = receive.read_to_end(MOST_BYTES + 2).await.map_err(|error| error.to_string())?;
    let text = text.get(2..).unwrap_or_default();
    decode(text).map(|hello| (hello, answer)).map_err(|problem| problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::bounds::MOST_PER_ADDRESS;
    use super::super::connect::authenticate;
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use qfabric_realm::{Tls, init_ca, issue};
    use quinn::ConnectionError;

    fn secured(folder: &std::path::Path) -> Secured {
        let (realm, host) = ("studio".parse().unwrap(), "cam".parse().unwrap());
        init_ca(folder, &realm).unwrap();
        issue(folder, &host, &[], folder, 30).unwrap();
        let access = folder.join("access.toml");
        std::fs::write(&access, "hosts = ['cam']").unwrap();
        let options = Options { handshake_time: Duration::from_secs(1), ..Options::default() };
        Secured { tls: Tls::from_folder(folder, &host, &access).unwrap(), options }
    }

    #[test]
    fn a_client_sends_no_streams_before_its_session_begins() {
        let folder = tempfile::tempdir().unwrap();
        let secured = Secured { options: Options::default(), ..secured(folder.path()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (door, _arrivals) = Door::open(&secured, "127.0.0.1:0".parse().unwrap()).unwrap();
            let address = door.address().unwrap();
            tokio::task::spawn_local(door.run());
            let path = authenticate(&secured, None, address, None).await.unwrap();
            let mut opening = pin!(path.connection.open_uni());
            assert!(opening.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        });
    }

    /// Else the client's session would wait for its first carrier for ever.
    #[test]
    fn a_client_that_takes_no_answer_is_disconnected() {
        let folder = tempfile::tempdir().unwrap();
        let secured = Secured { options: Options::default(), ..secured(folder.path()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (door, mut arrivals) = Door::open(&secured, "127.0.0.1:0".parse().unwrap()).unwrap();
            let address = door.address().unwrap();
            tokio::task::spawn_local(door.run());
            let mut closed = quinn::TransportConfig::default();
            closed.stream_receive_window(0u32.into());
            let mut config = config::client(&secured, &Arc::default()).unwrap();
            config.transport_config(Arc::new(closed));
            let client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
            let client = client.connect_with(config, address, "qfabric").unwrap().await.unwrap();
            let (mut asked, _answer) = client.open_bi().await.unwrap();
            let hello = Hello::Open { service: "film".parse().unwrap(), engine: crate::options::Engine::Metp };
            asked.write_all(&encode(&hello)).await.unwrap();
            asked.finish().unwrap();
            let arrival = arrivals.recv().await.unwrap();
            let path = timeout(Duration::from_secs(60), arrival.answer(&Answer::Attached)).await.unwrap();
            assert!(path.connection.close_reason().is_some());
        });
    }

    #[test]
    fn a_flood_of_forged_addresses_keeps_no_client_out_and_a_network_above_its_rate_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let secured = Secured { options: Options::default(), ..secured(folder.path()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (door, _arrivals) = Door::open(&secured, "127.0.0.1:0".parse().unwrap()).unwrap();
            let (address, bounds) = (door.address().unwrap(), door.bounds.clone());
            tokio::task::spawn_local(door.run());
            // An account that is used up in an hour is empty until then.
            let later = Instant::now() + Duration::from_secs(3_600);
            let flood = |from, is_proved| while bounds.borrow_mut().judge(from, is_proved, later) == Verdict::Accept {};
            flood([192, 0, 2, 1].into(), false);
            authenticate(&secured, None, address, None).await.unwrap();
            flood(address.ip(), true);
            let refused = authenticate(&secured, None, address, None).await.err().unwrap();
            assert!(refused.to_string().contains("refuses more connections"), "{refused}");
        });
    }

    /// With a certificate and without a first message: neither the connections of one address nor its handshakes stay
    /// taken.
    #[test]
    fn a_client_that_asks_for_nothing_is_disconnected_and_gives_its_place_back() {
        let folder = tempfile::tempdir().unwrap();
        let secured = secured(folder.path());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (door, _arrivals) = Door::open(&secured, "127.0.0.1:0".parse().unwrap()).unwrap();
            let (address, bounds) = (door.address().unwrap(), door.bounds.clone());
            tokio::task::spawn_local(door.run());
            let mut silent = Vec::new();
            for _ in 0..MOST_PER_ADDRESS {
                // Fails if this machine is so busy that the handshake itself takes too long.
                silent.extend(authenticate(&secured, None, address, None).await.ok());
            }
            for path in &silent {
                let end = path.connection.closed().await;
                assert!(matches!(end, ConnectionError::ApplicationClosed(_)), "{end}");
            }
            while bounds.borrow().total > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(bounds.borrow().addresses.is_empty() && bounds.borrow().handshakes == 0);
        });
    }
}
