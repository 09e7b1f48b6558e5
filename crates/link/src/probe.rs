//! Finds out why an address cannot be reached: makes a connection only to see its error.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme, StreamOwned,
};

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
    let config = config(tls).map_err(local)?;
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
    use AlertDescription::{BadCertificate, CertificateExpired, DecryptError, UnknownCA};
    use CertificateError::{BadSignature, Expired, ExpiredContext, UnknownIssuer};
    let other =
        "made by another authority: all hosts need certificates that `qfabric channel issue` made with one authority";
    let renew = "make a new one with `qfabric channel issue`, and run `qfabric channel reload`";
    match obstacle {
        Obstacle::Local(why) => why,
        Obstacle::Tls(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => {
            format!("its certificate has expired: {renew} there")
        }
        Obstacle::Tls(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)) => {
            format!("its certificate was {other}")
        }
        Obstacle::Tls(rustls::Error::AlertReceived(CertificateExpired)) => {
            format!("this host's certificate has expired: {renew}")
        }
        Obstacle::Tls(rustls::Error::AlertReceived(UnknownCA | BadCertificate | DecryptError)) => {
            format!("it does not accept this host's certificate, which was {other}")
        }
        Obstacle::Tls(error) => format!("{error}: check that a qfabric daemon with certificates listens there"),
    }
}

fn config(tls: &Tls) -> Result<ClientConfig, String> {
    let read = |path: &std::path::Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let certificates = |bytes: &[u8]| CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&read(&tls.ca)?).map_err(|error| error.to_string())?);
    let own = certificates(&read(&tls.certificate)?).map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(&read(&tls.key)?).map_err(|error| error.to_string())?;
    let provider = Arc::new(default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = Arc::new(AnyName(verifier.build().map_err(|error| error.to_string())?));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.dangerous().with_custom_certificate_verifier(verifier);
    builder.with_client_auth_cert(own, key).map_err(|error| error.to_string())
}

/// Accepts any name in a certificate of the authority: the access list checks names.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        match self.0.verify_server_cert(end, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
