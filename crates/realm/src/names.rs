//! Reads certificates: those of a file, and the name of the host that a certificate is for.

use std::path::Path;

use qfabric_types::channel::Name;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::parse_x509_certificate;

use crate::Error;

/// All certificates of a file.
///
/// # Errors
/// The file cannot be read, or is not PEM.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bad = |reason: String| Error::Certificate {
        path: path.to_owned(),
        reason: format!("cannot use this certificate: {reason}"),
    };
    let all = CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?;
    all.collect::<Result<_, _>>().map_err(|error| bad(error.to_string()))
}

/// The host that a certificate is for: its only common name. None: the certificate has no name, several names, or a name
/// that is not a host's.
pub fn host_of(certificate: &CertificateDer<'_>) -> Option<Name> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let mut names = parsed.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?.parse().ok()?;
    names.next().is_none().then_some(name)
}
