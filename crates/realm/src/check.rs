//! Checks a certificate before it is used. The handshake would only close the connection; this check reports the file
//! and the next step.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use qfabric_types::channel::Name;
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::{Pem, parse_x509_pem};

use crate::{Error, Tls};

/// Whether this host can use the files now.
///
/// # Errors
/// A file cannot be read, the certificate has expired, or belongs to another host, or the authority did not make it.
pub fn check_certificate(tls: &Tls, host: &Name) -> Result<(), Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    at(tls, host, now)
}

/// Like [`check_certificate`], at the time `now` in seconds since 1970.
pub(crate) fn at(tls: &Tls, host: &Name, now: i64) -> Result<(), Error> {
    check_key(&tls.key)?;
    let (own, authority) = (read(&tls.certificate)?, read(&tls.ca)?);
    let own = parse(&own, &tls.certificate)?;
    let authority = parse(&authority, &tls.ca)?;
    check_times(&own, &tls.certificate, host, now)?;
    check_times(&authority, &tls.ca, host, now)?;
    let bad = |reason| Error::Certificate { path: tls.certificate.clone(), reason };
    let name = own.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or("(none)");
    if name != host.as_str() {
        return Err(bad(format!(
            "it is for the host {name}, and this is {host}: use {host}'s, or set the host's name"
        )));
    }
    if own.verify_signature(Some(authority.public_key())).is_err() {
        return Err(bad(format!("it was not made by the authority {}", tls.ca.display())));
    }
    Ok(())
}

fn check_key(path: &Path) -> Result<(), Error> {
    let mode = fs::metadata(path).map_err(|source| Error::File { path: path.to_owned(), source })?.permissions().mode();
    if mode & 0o077 != 0 {
        let reason = format!("other users may read this key (mode {:o}): run chmod 600 on it", mode & 0o777);
        return Err(Error::Certificate { path: path.to_owned(), reason });
    }
    Ok(())
}

fn read(path: &Path) -> Result<Pem, Error> {
    let bytes = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let bad =
        |error| Error::Certificate { path: path.to_owned(), reason: format!("cannot use this certificate: {error}") };
    Ok(parse_x509_pem(&bytes).map_err(bad)?.1)
}

fn parse<'a>(pem: &'a Pem, path: &Path) -> Result<X509Certificate<'a>, Error> {
    let bad =
        |error| Error::Certificate { path: path.to_owned(), reason: format!("cannot use this certificate: {error}") };
    pem.parse_x509().map_err(bad)
}

fn check_times(certificate: &X509Certificate<'_>, path: &Path, host: &Name, now: i64) -> Result<(), Error> {
    let bad = |reason| Err(Error::Certificate { path: path.to_owned(), reason });
    let validity = certificate.validity();
    if now > validity.not_after.timestamp() {
        let until = validity.not_after;
        return bad(format!("it expired on {until}: make a new one with `qfabric channel issue {host}`"));
    }
    if now < validity.not_before.timestamp() {
        return bad(format!("it is valid from {} on: check this host's clock", validity.not_before));
    }
    Ok(())
}
