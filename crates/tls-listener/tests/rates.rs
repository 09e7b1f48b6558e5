//! The rate of handshakes, over real connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tls_listener::TlsListener;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const BURST: usize = 512;
const PER_SECOND: usize = 128;

/// Both sides of TLS with a certificate of their own.
fn tls() -> (TlsAcceptor, TlsConnector) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["wall".to_owned()]).unwrap().self_signed(&key).unwrap();
    let certificate = CertificateDer::from(certificate);
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let server = server.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server).into(), Arc::new(client).into())
}

async fn accept_all(mut listener: TlsListener) {
    while listener.accept().await.is_ok() {}
}

async fn is_served(connector: &TlsConnector, address: SocketAddr) -> bool {
    let stream = TcpStream::connect(address).await.unwrap();
    connector.connect(ServerName::try_from("wall").unwrap(), stream).await.is_ok()
}

#[test]
fn one_network_gets_its_burst_and_its_rate_of_handshakes_and_silence_costs_none() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (acceptor, connector) = tls();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let begin = Instant::now();
        let accepting = tokio::spawn(accept_all(tls_listener::builder(acceptor).listen(socket)));
        for _ in 0..2 * BURST {
            drop(TcpStream::connect(address).await.unwrap());
        }
        let mut served = 0;
        for _ in 0..3 * BURST {
            served += usize::from(is_served(&connector, address).await);
        }
        let most = BURST + 1 + (begin.elapsed().as_secs_f64() * PER_SECOND as f64) as usize;
        assert!((BURST..=most).contains(&served), "{served} of {} are served, expected {BURST} to {most}", 3 * BURST);
        assert!(tls_listener::refused() >= (3 * BURST - served) as u64);
        accepting.abort();
    });
}

/// Zenoh pauses after an error. If this crate tried again by itself, it would use a whole CPU.
#[test]
fn without_a_free_descriptor_each_attempt_ends_with_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // A connection in place of a listener: the kernel accepts none from it.
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = std::net::TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        connected.set_nonblocking(true).unwrap();
        drop(listening);
        let socket = std::net::TcpListener::from(std::os::fd::OwnedFd::from(connected));
        let mut listener = tls_listener::builder(tls().0).listen(TcpListener::from_std(socket).unwrap());
        for _ in 0..3 {
            assert!(listener.accept().await.is_err());
        }
    });
}
