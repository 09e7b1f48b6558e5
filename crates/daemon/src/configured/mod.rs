//! Contracts of the configuration: the tables `[[contract]]`, for what units and control groups run.
//!
//! ```text
//! configuration ─> tables ─> [thread qf-configured] ─ a process appears ─> admitted by the control thread
//!                                  ^                └ it leaves, or its table does ─> released
//!                                  └── inotify: groups that appear, fill, empty and vanish; ends of processes; SIGHUP
//! ```
//! docs/design/0056 states what is watched, and why.

mod config;
mod follower;
mod thread;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use qfabric_sync::{Lock, rank};
use qfabric_types::api::ConfiguredContract;

use crate::control::wake;

pub use config::ContractConfig;
pub(crate) use config::check;
pub(crate) use thread::start_thread;

/// What other threads see of the contracts of the configuration.
#[derive(Debug)]
pub(crate) struct Configured {
    shown: Lock<Vec<ConfiguredContract>, { rank::CONFIGURED }>,
    orders: Sender<Order>,
    wake: Arc<OwnedFd>,
}

/// What the thread is told.
#[derive(Debug)]
enum Order {
    /// The tables of a configuration that was read again.
    Replace(Vec<ContractConfig>),
    Stop,
}

impl Configured {
    /// All contracts of the configuration, with their applications at the last look.
    pub(crate) fn shown(&self) -> Vec<ConfiguredContract> {
        self.shown.with(|shown| shown.clone())
    }

    /// From now on these tables are in force. Refusals are logged.
    pub(crate) fn replace(&self, tables: Vec<ContractConfig>) {
        self.send(Order::Replace(tables));
    }

    /// After the end of the thread there is nothing to do.
    fn send(&self, order: Order) {
        let _ = self.orders.send(order);
        wake(&*self.wake);
    }
}
