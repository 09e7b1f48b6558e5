//! A daemon without other hosts, inside the test's process.
#![allow(dead_code)] // each test program uses a part

#[path = "../../../daemon/tests/common/patience.rs"]
mod patience;

use std::fs::File;

use qfabric_client::Client;
use qfabric_daemon::{Config, Embedded};
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::Nanos;

pub(crate) use self::patience::*;

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
