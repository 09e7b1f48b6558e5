//! TLS for the page. A certificate is the administrator's: browsers must trust it, so the daemon makes none.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use qfabric_types::api::Problem;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(super) use tokio_rustls::TlsAcceptor as Acceptor;

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
    use super::*;

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
