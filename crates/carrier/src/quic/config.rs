//! quinn's settings that differ from its defaults, with reasons.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{AckFrequencyConfig, ClientConfig, Connection, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt};
use rustls::client::Resumption;
use rustls::version::TLS13;

use super::rate::{GovernedFactory, Governor};
use crate::Error;
use crate::hello::ALPN;
use crate::options::{Engine, Options, Secured};

/// Datagrams that quinn keeps before they are sent: METP owns the queue, so that late frames are dropped. With 4 MB the
/// median delay of a stream above the path's rate was 800 ms, with 20 kB 115 ms.
pub(crate) const SEND_BUFFER: usize = 20_000;
/// Datagrams that arrived while this side's thread did something else; above it the oldest is lost.
const RECEIVE_BUFFER: usize = 512 << 10;
/// Keeps the path's state in firewalls; three of them fit into the shortest useful idle limit.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// METP repairs its losses itself, so QUIC acknowledges every tenth packet, and not every second one: one packet and one
/// wake-up of both threads less for each. A lost one is still noticed at once. METP's report on every eighth TPDU comes
/// first, and quinn adds its acknowledgment to that packet. So packets with an acknowledgment alone are rare, and this
/// number must stay above that of METP.
const ACKNOWLEDGED_TOGETHER: VarInt = VarInt::from_u32(9);
/// The window and the watchdog need acknowledgments that are not older than this.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(10);
/// Handshakes at the same time; the next ones are dropped before any calculation.
const MOST_HANDSHAKES: usize = 32;
/// Bytes of streams that wait here, until the engine with streams opens the window. The first message fits, and a host
/// without rights cannot fill the memory of a session.
const FIRST_MESSAGE: VarInt = VarInt::from_u32(16 << 10);
/// Bytes that one connection may send before its handshake is accepted.
const HANDSHAKE_BYTES: u64 = 64 << 10;

pub(crate) fn client(secured: &Secured, governor: &Arc<Governor>) -> Result<ClientConfig, Error> {
    let mut crypto = qfabric_realm::client_config(&secured.tls, &[&TLS13])?;
    crypto.alpn_protocols = vec![ALPN.to_vec()];
    // Every connection is checked against today's certificates.
    crypto.resumption = Resumption::disabled();
    let crypto = QuicClientConfig::try_from(crypto).expect("the provider has QUIC's first cipher suite");
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport(&secured.options, governor));
    Ok(config)
}

pub(crate) fn server_crypto(secured: &Secured) -> Result<Arc<QuicServerConfig>, Error> {
    let mut crypto = qfabric_realm::server_config(&secured.tls, &[&TLS13])?;
    crypto.alpn_protocols = vec![ALPN.to_vec()];
    crypto.send_tls13_tickets = 0;
    Ok(Arc::new(QuicServerConfig::try_from(crypto).expect("the provider has QUIC's first cipher suite")))
}

pub(crate) fn server(crypto: Arc<QuicServerConfig>, options: &Options, governor: &Arc<Governor>) -> ServerConfig {
    let mut config = ServerConfig::with_crypto(crypto);
    config.transport_config(transport(options, governor));
    config.max_incoming(MOST_HANDSHAKES).incoming_buffer_size(HANDSHAKE_BYTES);
    config.incoming_buffer_size_total(HANDSHAKE_BYTES * MOST_HANDSHAKES as u64);
    config
}

fn transport(options: &Options, governor: &Arc<Governor>) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    let idle = options.idle_limit.try_into().expect("the range of the option is smaller");
    transport.max_idle_timeout(Some(idle)).keep_alive_interval(Some(KEEP_ALIVE.min(options.idle_limit / 3)));
    transport.datagram_send_buffer_size(SEND_BUFFER).datagram_receive_buffer_size(Some(RECEIVE_BUFFER));
    // The exchange of `hello`. The messages of the engine with streams come later, see `open_streams`.
    transport.max_concurrent_bidi_streams(VarInt::from_u32(1));
    transport.max_concurrent_uni_streams(VarInt::from_u32(0));
    let message = VarInt::from_u64(options.largest_message.get() + 4_096).unwrap_or(VarInt::MAX);
    transport.stream_receive_window(message);
    transport.receive_window(FIRST_MESSAGE);
    transport.send_window(options.memory().get());
    // Begins with the size that every path carries and probes up to the wanted one, so that a smaller path loses nothing.
    // quinn's detector of black holes fires on ordinary loss, too. It falls back to the least size, METP cuts its messages
    // for it, and after a minute larger sizes are probed again.
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(options.mtu);
    transport.initial_mtu(Options::LEAST_MTU).min_mtu(Options::LEAST_MTU).mtu_discovery_config(Some(discovery));
    if options.engine == Engine::Metp {
        let mut acknowledgments = AckFrequencyConfig::default();
        acknowledgments.ack_eliciting_threshold(ACKNOWLEDGED_TOGETHER).max_ack_delay(Some(ACKNOWLEDGED_WITHIN));
        transport.ack_frequency_config(Some(acknowledgments));
    }
    transport.congestion_controller_factory(Arc::new(GovernedFactory {
        governor: governor.clone(),
        congestion: options.congestion,
        is_paced_above: options.engine == Engine::Metp,
    }));
    Arc::new(transport)
}

/// Lets the other side send messages as streams: the session has begun.
pub(crate) fn open_streams(connection: &Connection, options: &Options) {
    connection.set_max_concurrent_uni_streams(options.messages_in_flight.into());
    connection.set_receive_window(VarInt::from_u64(options.memory().get()).unwrap_or(VarInt::MAX));
}

/// A socket with room for the burst of a large frame.
pub(crate) fn socket(local: SocketAddr) -> Result<UdpSocket, Error> {
    const BURST: usize = 2 << 20;
    let socket = UdpSocket::bind(local).map_err(Error::io(format!("cannot use {local}")))?;
    // Fewer bytes are no error: the kernel has its own limit.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BURST);
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, BURST);
    Ok(socket)
}
