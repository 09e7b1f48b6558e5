//! QUIC as an application uses it that knows nothing of deadlines: a stream for each message, with quinn's own settings.
//! For comparisons only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use qfabric_realm::Tls;
use quinn::congestion::BbrConfig;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig};
use rustls::version::TLS13;
use tokio::sync::mpsc as async_mpsc;

use crate::options::Congestion;
use crate::{End, Error, runtime};

const ALPN: &[u8] = b"qfabric-plain-streams";
/// Messages that wait for the connection's thread; each has a stream behind it.
const MOST_WAITING: usize = 4;
/// A connection may wait longer for its first message than quinn's 30 s for silent ones.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The sending side.
pub struct StreamSender {
    messages: async_mpsc::Sender<Vec<u8>>,
}

impl StreamSender {
    /// Connects with mutual TLS.
    ///
    /// # Errors
    /// A certificate cannot be used, or nobody answers.
    pub fn open(peer: SocketAddr, tls: Tls, congestion: Congestion) -> Result<StreamSender, Error> {
        let (messages, taken) = async_mpsc::channel(MOST_WAITING);
        runtime::start(move || async move {
            let connection = connect(peer, &tls, congestion).await?;
            Ok(((), send_all(connection, taken)))
        })?;
        Ok(StreamSender { messages })
    }

    /// Sends a message; waits while several wait.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&self, message: Vec<u8>) -> Result<(), Error> {
        self.messages.blocking_send(message).map_err(|_| Error::Ended(End::Closed))
    }
}

async fn connect(peer: SocketAddr, tls: &Tls, congestion: Congestion) -> Result<Connection, Error> {
    let mut crypto = qfabric_realm::client_config(tls, &[&TLS13])?;
    crypto.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicClientConfig::try_from(crypto).expect("the provider has QUIC's first cipher suite");
    let mut config = ClientConfig::new(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(KEEP_ALIVE));
    if congestion == Congestion::Bbr {
        transport.congestion_controller_factory(Arc::new(BbrConfig::default()));
    }
    config.transport_config(Arc::new(transport));
    let any: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let endpoint = Endpoint::client(SocketAddr::new(any, 0)).map_err(Error::io("cannot use a socket"))?;
    let failed = |why: String| Error::Handshake { address: peer, why };
    let connecting = endpoint.connect_with(config, peer, "qfabric").map_err(|error| failed(error.to_string()))?;
    connecting.await.map_err(|error| failed(error.to_string()))
}

/// Opens a stream for each message, and waits while the other side allows no more streams.
async fn send_all(connection: Connection, mut messages: async_mpsc::Receiver<Vec<u8>>) {
    while let Some(message) = messages.recv().await {
        let Ok(mut stream) = connection.open_uni().await else { return };
        tokio::task::spawn_local(async move {
            // The connection ends with an error here.
            let _ = stream.write_all(&message).await;
            let _ = stream.finish();
        });
    }
    // The last messages are still on their way.
    connection.closed().await;
}

/// The receiving side: takes the streams of one connection.
pub struct StreamReceiver {
    messages: mpsc::Receiver<Vec<u8>>,
}

impl StreamReceiver {
    /// Listens. A message above `largest` bytes is refused.
    ///
    /// # Errors
    /// A certificate cannot be used, or the address cannot be listened on.
    pub fn listen(local: SocketAddr, tls: Tls, largest: usize) -> Result<StreamReceiver, Error> {
        let (arrived, messages) = mpsc::sync_channel(1_024);
        runtime::start(move || async move {
            let mut crypto = qfabric_realm::server_config(&tls, &[&TLS13])?;
            crypto.alpn_protocols = vec![ALPN.to_vec()];
            let crypto = QuicServerConfig::try_from(crypto).expect("the provider has QUIC's first cipher suite");
            let config = ServerConfig::with_crypto(Arc::new(crypto));
            let endpoint = Endpoint::server(config, local).map_err(Error::io(format!("cannot use {local}")))?;
            Ok(((), receive_all(endpoint, arrived, largest)))
        })?;
        Ok(StreamReceiver { messages })
    }

    /// The next message that is whole.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn receive(&self) -> Result<Vec<u8>, Error> {
        self.messages.recv().map_err(|_| Error::Ended(End::Closed))
    }
}

async fn receive_all(endpoint: Endpoint, arrived: mpsc::SyncSender<Vec<u8>>, largest: usize) {
    let Some(incoming) = endpoint.accept().await else { return };
    let Ok(connection) = incoming.await else { return };
    while let Ok(mut stream) = connection.accept_uni().await {
        let arrived = arrived.clone();
        tokio::task::spawn_local(async move {
            if let Ok(message) = stream.read_to_end(largest).await {
                // A receiver that does not take its messages loses them.
                let _ = arrived.try_send(message);
            }
        });
    }
}
