//! A daemon without other hosts, inside the test's process.
#![allow(dead_code)] // each test program uses a part

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use qfabric_client::Client;
use qfabric_daemon::{Config, Embedded, Log};
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::Nanos;

/// Bound of every wait, so that a test fails instead of hanging; longer than any step, even with eight hogs per core.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Host {
    _service: Embedded,
    pub(crate) client: Client,
    _alone: File,
}

impl Host {
    /// None, where this host offers no mechanism: then there is no service at all.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Option<Host> {
        if !may_reserve() {
            return None;
        }
        let alone = live_lock();
        let mut config = quiet();
        config.control.budget = Nanos::ZERO;
        change(&mut config);
        let service = Embedded::start(config).unwrap();
        let client = connected(service.socket());
        Some(Host { _service: service, client, _alone: alone })
    }
}

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
