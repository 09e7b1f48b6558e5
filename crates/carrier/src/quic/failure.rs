//! Why a handshake failed or a connection ended, for users.

use std::net::SocketAddr;

use quinn::{ConnectionError, TransportErrorCode};
use rustls::{AlertDescription, CertificateError};

use crate::Error;

/// Codes from here on are TLS alerts (RFC 9001 §4.8).
const ALERTS: u64 = 0x100;

/// The error of an attempt to connect to `address`.
pub(crate) fn explain(address: SocketAddr, error: &ConnectionError, within: std::time::Duration) -> Error {
    let why = match error {
        ConnectionError::TimedOut => return Error::NoAnswer { address, within },
        ConnectionError::TransportError(error) => match alert(error.code) {
            Some(alert) => of_other_side(alert, &error.reason),
            None => error.to_string(),
        },
        ConnectionError::ConnectionClosed(close) => match alert(close.error_code) {
            Some(AlertDescription::NoApplicationProtocol) => "it does not speak METP".to_owned(),
            Some(alert) => qfabric_realm::explain_alert(alert),
            None if close.error_code == TransportErrorCode::CONNECTION_REFUSED => {
                "it refuses more connections of this address for now".to_owned()
            }
            None => close.to_string(),
        },
        other => other.to_string(),
    };
    Error::Handshake { address, why }
}

/// This side refused the other side's certificate.
fn of_other_side(alert: AlertDescription, reason: &str) -> String {
    let certificate = |error| qfabric_realm::explain(&rustls::Error::InvalidCertificate(error));
    match alert {
        AlertDescription::CertificateExpired => certificate(CertificateError::Expired),
        AlertDescription::UnknownCA => certificate(CertificateError::UnknownIssuer),
        AlertDescription::DecryptError => certificate(CertificateError::BadSignature),
        AlertDescription::NoApplicationProtocol => "it does not speak METP".to_owned(),
        _ => reason.to_owned(),
    }
}

fn alert(code: TransportErrorCode) -> Option<AlertDescription> {
    let code = u64::from(code).checked_sub(ALERTS)?;
    u8::try_from(code).ok().map(AlertDescription::from)
}
