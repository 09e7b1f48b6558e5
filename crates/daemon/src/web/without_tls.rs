//! Replaces TLS for the page in a build without the feature `zenoh`, which has no certificates.

use std::convert::Infallible;
use std::future::Ready;
use std::io;
use std::path::Path;

use qfabric_types::api::Problem;
use tokio::net::TcpStream;

/// Never exists in this build.
#[derive(Clone)]
pub(super) struct Acceptor {
    never: Infallible,
}

impl Acceptor {
    pub(super) fn accept(&self, _: TcpStream) -> Ready<io::Result<TcpStream>> {
        match self.never {}
    }
}

/// Always refuses.
pub(super) fn acceptor(certificate: &Path, _: &Path) -> Result<Acceptor, Problem> {
    let message = format!("web.certificate {}: this program was built without certificates", certificate.display());
    let next_step = "build it with `cargo build --release -p qfabric-cli`, or remove web.certificate and web.key";
    Err(Problem::new("web_tls", message, next_step))
}
