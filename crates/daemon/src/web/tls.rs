//! TLS for the page. A certificate is the administrator's: browsers must trust it, so the daemon makes none.

use std::fmt::Display;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qfabric_types::api::Problem;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::Acceptor as FirstMessage;
use tls_listener::Rates;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

pub(super) use tokio_rustls::TlsAcceptor as Acceptor;

/// Handshakes that a network (an IPv4 address or an IPv6 /64) may begin at once. A browser opens six connections and
/// keeps them, so this is enough for ten browsers behind one address.
const BURST: u32 = 64;
/// The time in which a network may begin one more: 16 in a second.
const INTERVAL: Duration = Duration::from_nanos(62_500_000);

/// The handshakes that each network may begin.
#[derive(Debug)]
pub(super) struct Handshakes(Rates);

impl Default for Handshakes {
    fn default() -> Handshakes {
        Handshakes(Rates::new(BURST, INTERVAL))
    }
}

impl Handshakes {
    /// Takes one handshake from the account of the network; false if the account is empty.
    pub(super) fn take(&mut self, network: IpAddr, now: Instant) -> bool {
        self.0.take(network, now)
    }
}

/// Waits for the client's first message, and completes the handshake if `may_begin` says so. The answer to the message
/// is what costs CPU time here: a key exchange and a signature.
///
/// # Errors
/// The handshake failed, or may not begin ([`io::ErrorKind::ResourceBusy`]); the client has no answer then.
pub(super) async fn accept(
    acceptor: &Acceptor,
    stream: TcpStream,
    may_begin: impl FnOnce() -> bool,
) -> io::Result<TlsStream<TcpStream>> {
    let begun = LazyConfigAcceptor::new(FirstMessage::default(), stream).await?;
    if !may_begin() {
        let why = "the network begins more handshakes than its 16 in a second";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    begun.into_stream(acceptor.config().clone()).await
}

/// Accepts TLS with the certificates in `certificate` (PEM, the page's own first) and the key in `key`. A key that all
/// users could read would protect nothing.
pub(super) fn acceptor(certificate: &Path, key: &Path) -> Result<Acceptor, Problem> {
    let of_certificate = |error: &dyn Display| unusable("web.certificate", certificate, error);
    let of_key = |error: &dyn Display| unusable("web.key", key, error);
    let chain = CertificateDer::pem_file_iter(certificate).and_then(|all| all.collect::<Result<Vec<_>, _>>());
    let chain = chain.map_err(|error| of_certificate(&error))?;
    let mode = fs::metadata(key).map_err(|error| of_key(&error))?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(of_key(&"every user may use the file; set its mode to 0600 or 0640"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| of_key(&error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| of_certificate(&error))?;
    let config = builder.with_no_client_auth().with_single_cert(chain, secret);
    let mut config = config.map_err(|error| of_certificate(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Acceptor::from(Arc::new(config)))
}

fn unusable(name: &str, path: &Path, why: &dyn Display) -> Problem {
    let next_step = "name a certificate in PEM for this host, and its key: `qfabric channel issue` makes both";
    Problem::new("web_tls", format!("{name} {}: {why}", path.display()), next_step)
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// The first message of a client.
    fn hello() -> Vec<u8> {
        let client = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let client = client.with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let name = ServerName::try_from("media.example").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut bytes = Vec::<u8>::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// Whether a client's first message gets an answer.
    async fn is_answered(acceptor: &Acceptor, may_begin: bool) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        client.write_all(&hello()).await.unwrap();
        let mut answer = [0; 1];
        tokio::select! {
            read = client.read(&mut answer) => read.unwrap() > 0,
            Err(refused) = accept(acceptor, stream, || may_begin) => {
                assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "{refused}");
                false
            }
        }
    }

    #[tokio::test]
    async fn a_handshake_that_may_not_begin_costs_no_signature_and_has_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        qfabric_realm::init_ca(folder.path(), &"home".parse().unwrap()).unwrap();
        let out = folder.path().join("media");
        let issued = qfabric_realm::issue(folder.path(), &"media".parse().unwrap(), &[], &out, 30).unwrap();
        let acceptor = acceptor(&issued.certificate, &issued.key).unwrap();
        assert!(is_answered(&acceptor, true).await);
        assert!(!is_answered(&acceptor, false).await);
    }

    #[test]
    fn a_certificate_or_a_key_that_cannot_be_used_is_named_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let (garbage, public) = (write("garbage", "no PEM\n", 0o600), write("public", "no PEM\n", 0o644));
        let refusal = |certificate: &Path, key: &Path| match acceptor(certificate, key) {
            Ok(_) => panic!("{} was accepted", certificate.display()),
            Err(problem) => problem.to_string(),
        };
        let missing = folder.path().join("missing");
        for (certificate, key, part) in [
            (&missing, &garbage, "web.certificate "),
            (&garbage, &missing, "web.key "),
            (&garbage, &public, "every user may use the file"),
            (&garbage, &garbage, "web.key "),
        ] {
            let text = refusal(certificate, key);
            assert!(text.contains(part) && text.contains("qfabric channel issue"), "{text}");
        }
    }
}
