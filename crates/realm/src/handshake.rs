//! Mutual TLS with the files of a realm: both sides show a certificate of the realm's authority. Names are not compared
//! with network addresses, because an address proves nothing in addition to the certificate; the caller compares the
//! name in the certificate ([`crate::host_of`]) with its access list.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme, SupportedProtocolVersion,
};

use crate::{Error, Tls, certificates};

/// The side that connects.
///
/// # Errors
/// A file cannot be read or used.
pub fn client_config(tls: &Tls, versions: &[&'static SupportedProtocolVersion]) -> Result<ClientConfig, Error> {
    let provider = Arc::new(default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(tls)?, provider.clone()).build();
    let verifier = Arc::new(AnyName(verifier.map_err(|error| bad(&tls.ca, error))?));
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions);
    let builder = builder.map_err(|error| bad(&tls.ca, error))?.dangerous().with_custom_certificate_verifier(verifier);
    let config = builder.with_client_auth_cert(certificates(&tls.certificate)?, key(&tls.key)?);
    config.map_err(|error| bad(&tls.certificate, error))
}

/// The side that is connected to. A client without a certificate of the authority is refused.
///
/// # Errors
/// A file cannot be read or used.
pub fn server_config(tls: &Tls, versions: &[&'static SupportedProtocolVersion]) -> Result<ServerConfig, Error> {
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(tls)?, provider.clone()).build();
    let verifier = verifier.map_err(|error| bad(&tls.ca, error))?;
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions);
    let builder = builder.map_err(|error| bad(&tls.ca, error))?.with_client_cert_verifier(verifier);
    let config = builder.with_single_cert(certificates(&tls.certificate)?, key(&tls.key)?);
    config.map_err(|error| bad(&tls.certificate, error))
}

/// Why a handshake failed on this side, with the next step.
pub fn explain(error: &rustls::Error) -> String {
    use CertificateError::{BadSignature, Expired, ExpiredContext, UnknownIssuer};
    match error {
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => {
            format!("its certificate has expired: {RENEW} there")
        }
        rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature) => format!("its certificate was {OTHER}"),
        rustls::Error::AlertReceived(alert) => explain_alert(*alert),
        other => unknown(other),
    }
}

/// Why the other side refused the handshake, with the next step.
pub fn explain_alert(alert: AlertDescription) -> String {
    use AlertDescription::{BadCertificate, CertificateExpired, CertificateRequired, DecryptError, UnknownCA};
    match alert {
        CertificateExpired => format!("this host's certificate has expired: {RENEW}"),
        UnknownCA | BadCertificate | DecryptError => {
            format!("it does not accept this host's certificate, which was {OTHER}")
        }
        CertificateRequired => "it requires a certificate: `qfabric channel issue` makes one".to_owned(),
        other => unknown(&rustls::Error::AlertReceived(other)),
    }
}

const OTHER: &str =
    "made by another authority: all hosts need certificates that `qfabric channel issue` made with one authority";
const RENEW: &str = "make a new one with `qfabric channel issue`, and run `qfabric channel reload`";

fn unknown(error: &rustls::Error) -> String {
    format!("{error}: check that a qfabric program with certificates listens there")
}

fn roots(tls: &Tls) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&tls.ca)?);
    Ok(Arc::new(roots))
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| bad(path, format!("cannot use this key: {error}")))
}

fn bad(path: &Path, reason: impl ToString) -> Error {
    Error::Certificate { path: path.to_owned(), reason: reason.to_string() }
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
