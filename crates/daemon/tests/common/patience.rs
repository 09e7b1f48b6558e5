//! The patience of the tests with a daemon, and what waits by it. Tests of the crate `client` use this file, too.

use std::path::Path;
use std::time::{Duration, Instant};

use qfabric_client::Client;
use qfabric_daemon::{Config, Log};
use qfabric_types::Nanos;

/// Bound of every wait, so that a test fails instead of hanging; longer than any step, even with eight hogs per core.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Requests may take as long as a test waits for them.
pub(crate) fn quiet() -> Config {
    let mut config = Config { log: Log { filter: "error".into(), ..Log::default() }, ..Config::default() };
    config.api.timeout = Nanos::new(PATIENCE.as_nanos() as u64);
    config
}

/// A client of the service at this socket, as soon as it answers.
pub(crate) fn connected(socket: impl AsRef<Path>) -> Client {
    let mut client = None;
    eventually("the service answers", || {
        client = Client::connect_to(&socket).ok();
        client.is_some()
    });
    client.unwrap().with_patience(PATIENCE)
}

/// Waits until `condition` holds; panics with `what` if it does not.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
