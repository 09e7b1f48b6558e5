//! One host as one value: controllers, supervisor and the order in which reservations are changed.
//!
//! Feed it what happened ([`Host::handle`]), take what is to be done ([`Host::poll`]) until it says nothing
//! more, come back at [`Host::next_wakeup`]. It reads no clock and does no I/O: the daemon runs it over
//! Linux, the simulator over a modelled processor.
#![forbid(unsafe_code)]

mod words;

pub use qfabric_broker::Limits;
pub use words::{HostConfig, HostEvent, Input, Outcome, Output};

use qfabric_types::api::{Application, HostStatus};
use qfabric_types::ring::Grant;
use qfabric_types::{AppId, Instant};

/// One host.
pub struct Host {
    config: HostConfig,
}

impl Host {
    /// A host that has promised nothing yet.
    pub fn new(config: HostConfig) -> Self {
        Host { config }
    }

    /// Takes in what happened at `now`. Moments never go backwards; where they do, the latest counts.
    pub fn handle(&mut self, _input: Input, _now: Instant) {}

    /// The next thing to do or tell, if there is one. Drain it after every [`Host::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        None
    }

    /// When [`Input::Tick`] is due at the latest; none: only when something happens.
    pub fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// Until when nobody need look at this application's ring: its next decision is due then.
    /// [`Instant::ZERO`]: its job is overdue, let it wake the daemon.
    pub fn look_at(&self, _app: AppId) -> Instant {
        Instant::ZERO
    }

    /// What is to be shown to the application through its ring.
    pub fn grant(&self, _app: AppId) -> Option<Grant> {
        None
    }

    /// One application as the host sees it.
    pub fn application(&self, _app: AppId) -> Option<Application> {
        None
    }

    /// The whole host.
    pub fn status(&self) -> HostStatus {
        HostStatus {
            version: self.config.version.clone(),
            mechanism: self.config.mechanism.clone(),
            capacity: self.config.limits.capacity,
            guaranteed: Default::default(),
            granted: Default::default(),
            applications: Vec::new(),
        }
    }
}
