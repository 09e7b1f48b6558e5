//! A daemon without other hosts, inside the test's process.

use std::fs::File;

use qfabric_client::Client;
use qfabric_daemon::{Config, Embedded, Log};
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::Nanos;

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
        let mut config = Config { log: Log { filter: "error".into(), ..Log::default() }, ..Config::default() };
        config.control.budget = Nanos::ZERO;
        change(&mut config);
        let service = Embedded::start(config).unwrap();
        let client = Client::connect_to(service.socket()).unwrap();
        Some(Host { _service: service, client, _alone: alone })
    }
}
