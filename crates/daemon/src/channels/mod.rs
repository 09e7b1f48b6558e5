//! Q-channels: this host's node, its network, and the applications that are connected.
//!
//! ```text
//! HTTP: create, join, filters … ──┐                       ┌──> other hosts
//!                                 ├──> Network ( Node ) ──┤
//! channels.sock: submit ──────────┘      one lock         └──> Mailbox ──> socket's thread ──> channels.sock: events
//! ```
//! | file | what |
//! |---|---|
//! | `config.rs`, `node.rs` | the section `[channels]`; what the node is told at its start |
//! | `network.rs`, `mailbox.rs` | the node and its network; what it says, until there is time to carry it out |
//! | `reload.rs` | another access list and other certificates, while there are members |
//! | `rules.rs` | which users may do what on which channels |
//! | `registry.rs`, `socket.rs`, `serve.rs`, `pump.rs` | connections: who has what, what they say, what they get |
//! | `members.rs`, `filters.rs`, `owned.rs`, `groups.rs`, `monitors.rs`, `show.rs` | what the paths do |
//! | `attributes.rs`, `triggers.rs` | what monitors read, and what the kernel watches for them |
//! | `answering.rs` | who answers `qfabric channel ping` |
//! | `lending.rs`, `offers.rs` | what hosts keep for each other's refused applications |
//! | `policies/`, `reports.rs` | what managers do here for channels, and what they hear |
//! | `routes/`, `problems.rs` | the paths, and their refusals |
//!
//! Locks are taken in this order: registry, node, mailbox ([`qfabric_sync::rank`]; debug builds assert it).

mod answering;
mod attributes;
mod config;
mod filters;
mod groups;
mod lending;
mod mailbox;
mod members;
mod monitors;
mod network;
mod node;
mod offers;
mod owned;
mod policies;
mod problems;
mod pump;
mod registry;
mod reload;
mod report;
mod reports;
pub(crate) mod routes;
mod rules;
mod serve;
mod show;
mod socket;
#[cfg(test)]
mod tests;
mod triggers;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use qfabric_sync::{Guard, Lock, lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::channel::Name;
use rustix::event::epoll::{self, CreateFlags};

use crate::closer::Closer;
use crate::control::Requests;
use crate::ending::Ending;
use crate::startup::DaemonError;
use answering::Answering;
use filters::Asked;
use lending::Lending;
use mailbox::Mailbox;
use monitors::Monitors;
use network::Network;
use owned::Owned;
pub(crate) use policies::PolicyThread;
use policies::{ControlListener, Policies};
use registry::Registry;
use reports::Reports;

pub use config::{ChannelsConfig, EngineName, Lend, Mode, Scouting};
pub(crate) use lending::Wish;
pub(crate) use monitors::MonitorThread;
pub(crate) use report::{ChannelReport, ChannelsReport};
pub use rules::{Right, Rule};
pub(crate) use socket::SocketThread;

/// This host's channels; they may be switched off.
pub(crate) struct Channels {
    fabric: Option<Arc<Fabric>>,
    /// The way to the control thread.
    requests: Requests,
}

/// Everything about them, shared by the API's threads and the socket's.
pub(crate) struct Fabric {
    config: ChannelsConfig,
    host: Name,
    network: Network,
    mailbox: Arc<Mailbox>,
    registry: Lock<Registry, { rank::CHANNELS_REGISTRY }>,
    /// What was asked of other hosts' filters.
    asked: Asked,
    answering: Answering,
    owned: Owned,
    monitors: Monitors,
    policies: Policies,
    reports: Reports,
    lending: Lending,
    closer: Closer,
    /// What the socket's thread waits for.
    epoll: OwnedFd,
    /// The sockets of all connections.
    lines: OwnedFd,
    /// The way to the control thread.
    requests: Requests,
    stopping: AtomicBool,
    totals: Totals,
}

/// What is counted over all connections, also those that are gone.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub submitted: AtomicU64,
    pub refused: AtomicU64,
    pub delivered: AtomicU64,
    pub nonsense: AtomicU64,
    pub notices_dropped: AtomicU64,
    pub decisions: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Channels {
    /// Joins the network, where that is configured.
    pub fn start(config: &ChannelsConfig, requests: Requests, ending: &Ending) -> Result<Channels, DaemonError> {
        if !config.enabled {
            return Ok(Channels { fabric: None, requests });
        }
        let fabric = Fabric::start(config, requests.clone(), ending)?;
        fabric.network.add_policy(Box::new(ControlListener(fabric.mailbox.clone())));
        fabric.begin_lending()?;
        for policy in &config.policy {
            let refused = |problem: Problem| format!("channels.policy: {problem}");
            let started = fabric.start_policy(None, policy.clone());
            started.map_err(|problem| DaemonError::Channels(refused(problem)))?;
        }
        let (host, realm, engine, listen) = (&fabric.host, &config.realm, config.engine, config.listen.join(", "));
        tracing::info!(%host, %realm, ?engine, listen, "this host has channels");
        let fabric = Arc::new(fabric);
        fabric.mailbox.serve(&fabric);
        Ok(Channels { fabric: Some(fabric), requests })
    }

    /// What there is, or the refusal that says how to switch it on.
    pub fn on(&self) -> Result<&Arc<Fabric>, Problem> {
        self.fabric.as_ref().ok_or_else(problems::off)
    }

    /// What metrics show.
    pub fn report(&self) -> Option<ChannelsReport> {
        self.fabric.as_ref().map(|fabric| fabric.report())
    }
}

impl Fabric {
    fn start(config: &ChannelsConfig, requests: Requests, ending: &Ending) -> Result<Fabric, DaemonError> {
        let failed = |error: std::io::Error| DaemonError::Channels(error.to_string());
        let mailbox = Arc::new(Mailbox::new(ending).map_err(failed)?);
        let host = config.name().expect("checked with the configuration");
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let lines = epoll::create(CreateFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let network = Network::open(config, host.clone(), &mailbox)?;
        let mailbox_wake = mailbox.waker();
        Ok(Fabric {
            config: config.clone(),
            host,
            network,
            mailbox,
            registry: Lock::default(),
            asked: Asked::default(),
            answering: Answering::default(),
            owned: Owned::default(),
            monitors: Monitors::new().map_err(failed)?,
            policies: Policies::default(),
            reports: Reports::default(),
            lending: Lending::new(mailbox_wake),
            closer: Closer::default(),
            epoll,
            lines,
            requests,
            stopping: AtomicBool::new(false),
            totals: Totals::default(),
        })
    }

    fn registry(&self) -> Guard<'_, Registry, { rank::CHANNELS_REGISTRY }> {
        lock(&self.registry)
    }

    /// Ends every connection and what was opened under it, and says goodbye to the others.
    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.mailbox.nudge();
    }

    fn end(&self) {
        let leases: Vec<_> = self.registry().leases.keys().copied().collect();
        leases.into_iter().for_each(|lease| self.end_lease(lease));
        self.network.close();
    }
}
