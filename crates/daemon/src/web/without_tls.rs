//! Replaces TLS for the page in a build without the feature `zenoh`, which has no certificates.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use qfabric_types::api::Problem;
use tokio::net::TcpStream;

/// Never exists in this build.
#[derive(Clone)]
pub(super) struct Acceptor {
    never: Infallible,
}

/// Bounds nothing: there are no handshakes.
#[derive(Debug, Default)]
pub(super) struct Handshakes;

impl Handshakes {
    pub(super) fn take(&mut self, _: IpAddr, _: Instant) -> bool {
        true
    }
}

/// Is never called, because there is no acceptor.
pub(super) async fn accept(acceptor: &Acceptor, _: TcpStream, _: impl FnOnce() -> bool) -> io::Result<TcpStream> {
    match acceptor.never {}
}

/// Always refuses.
pub(super) fn acceptor(certificate: &Path, _: &Path) -> Result<Acceptor, Problem> {
    let message = format!("web.certificate {}: this program was built without certificates", certificate.display());
    let next_step = "build it with `cargo build --release -p qfabric-cli`, or remove web.certificate and web.key";
    Err(Problem::new("web_tls", message, next_step))
}
