//! Q-channels: this host's node, its network, and the applications that are connected.
//!
//! ```text
//! HTTP: create, join, filters … ──┐                       ┌──> other hosts
//!                                 ├──> Network ( Node ) ──┤
//! channels.sock: submit ──────────┘      one lock         └──> Mailbox ──> socket's thread ──> channels.sock: events
//! ```
//! | file | what |
//! |---|---|
//! | `config.rs`, `settings.rs`, `node.rs` | the section `[channels]`, in force; the node's configuration |
//! | `network.rs`, `mailbox.rs` | the node and its network; the node's outputs, until they are carried out |
//! | `reload.rs` | reloads the access list and the certificates while there are members |
//! | `renewal.rs` | joins the network again when its session is used up, or could not be opened |
//! | `rules.rs` | rights of this host's users on channels |
//! | `registry.rs`, `socket.rs`, `serve.rs`, `pump.rs` | connections: their members, messages and events |
//! | `habit.rs` | busy connections, at which the thread looks without being woken |
//! | `members.rs`, `filters.rs`, `owned.rs`, `groups.rs`, `monitors.rs`, `show.rs` | operations of the API |
//! | `attributes.rs`, `triggers.rs` | attributes that monitors read; thresholds that the kernel watches |
//! | `ends.rs` | sources and sinks for chains of ECalls |
//! | `answering.rs` | answers `qfabric channel ping` |
//! | `lending.rs`, `offers.rs` | loans between hosts; offers that this host received |
//! | `contracts.rs` | joint contracts and ECalls with other hosts |
//! | `path/` | changes of filter parameters that the kernel of the receiving host applies |
//! | `policies/`, `reports.rs` | policies of this host's manager; reports of arrival rates |
//! | `reporters.rs` | places for the values that applications report |
//! | `openings.rs` | how many channels a user makes active in a time |
//! | `routes/`, `problems.rs` | the API's paths, and their refusals |
//!
//! Locks are taken in this order: registry, node, mailbox ([`qfabric_sync::rank`]; debug builds assert it).

mod answering;
mod attributes;
mod config;
mod contracts;
mod ends;
mod filters;
mod groups;
mod habit;
mod held;
mod history;
mod lending;
mod mailbox;
mod members;
mod monitors;
mod network;
mod node;
mod offers;
mod openings;
mod owned;
mod path;
mod policies;
mod problems;
mod pump;
mod registry;
mod reload;
mod renewal;
mod report;
mod reporters;
mod reports;
pub(crate) mod routes;
mod rules;
mod serve;
mod settings;
mod show;
mod socket;
#[cfg(test)]
mod tests;
mod triggers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use qfabric_host::manager::Input;
use qfabric_sync::{Lock, lock, rank};
use qfabric_types::api::Problem;
use qfabric_types::monitor::Reading;

use crate::closer::Closer;
use crate::control::Requests;
use crate::ending::Ending;
use crate::net::Board;
use crate::startup::DaemonError;
use crate::timeline::Recorder;
use answering::Answering;
use filters::Asked;
use lending::Lending;
use mailbox::Mailbox;
use monitors::Monitors;
use network::Network;
use owned::Owned;
pub use path::KernelPathConfig;
use path::Path;
pub(crate) use path::{PathReport, start_path};
pub(crate) use policies::start_policies;
use policies::{ControlListener, Policies};
use registry::Registry;
use renewal::Renewal;
use reports::Reports;
use settings::Settings;
use socket::Sockets;

pub use config::{ChannelsConfig, EngineName, Lend, Mode, Scouting};
pub(crate) use ends::{Arrivals, Bell, Inlet, Outlet};
pub(crate) use lending::{LoanNeeds, RequestKind};
pub(crate) use monitors::start_monitor;
pub(crate) use renewal::start_renewal;
pub(crate) use report::{ChannelReport, ChannelsReport};
pub use rules::{Right, Rule};
pub(crate) use socket::SocketThread;

/// The channels of this host; they may be switched off.
pub(crate) struct Channels {
    fabric: Option<Arc<Fabric>>,
    requests: Requests,
}

/// State of the channels, shared by the threads of the API, of the sockets and of the network.
pub(crate) struct Fabric {
    settings: Settings,
    network: Network,
    renewal: Renewal,
    mailbox: Arc<Mailbox>,
    registry: Lock<Registry, { rank::CHANNELS_REGISTRY }>,
    /// Requests about filters of other hosts.
    asked: Asked,
    answering: Answering,
    owned: Owned,
    /// `None`: parameters are changed through the daemons.
    path: Option<Path>,
    monitors: Monitors,
    policies: Policies,
    reports: Reports,
    lending: Lending,
    closer: Closer,
    sockets: Sockets,
    requests: Requests,
    /// What streams of packets count, and decisions about them.
    board: Arc<Board>,
    timeline: Arc<Recorder>,
    stopping: AtomicBool,
    totals: Totals,
}

/// Counters of all connections, including those that have ended.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub submitted: AtomicU64,
    pub refused: AtomicU64,
    pub delivered: AtomicU64,
    pub nonsense: AtomicU64,
    pub reports_refused: AtomicU64,
    pub notices_dropped: AtomicU64,
    pub decisions: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Channels {
    /// Joins the network, if one is configured.
    pub(crate) fn start(
        config: &ChannelsConfig,
        requests: Requests,
        board: Arc<Board>,
        timeline: Arc<Recorder>,
        ending: &Ending,
    ) -> Result<Channels, DaemonError> {
        if !config.enabled {
            return Ok(Channels { fabric: None, requests });
        }
        let fabric = Fabric::start(config, requests.clone(), board, timeline, ending)?;
        fabric.network.add_policy(Box::new(ControlListener(fabric.mailbox.clone())));
        fabric.begin_lending()?;
        fabric.begin_contracts()?;
        fabric.begin_ecalls()?;
        for policy in &config.policy {
            let started = fabric.start_policy(None, policy.clone());
            started.map_err(|problem| DaemonError::refused("channels.policy", problem))?;
        }
        let (host, realm, engine, listen) =
            (&fabric.network.host, &config.realm, config.engine, config.listen.join(", "));
        tracing::info!(%host, %realm, ?engine, listen, "this host has channels");
        let fabric = Arc::new(fabric);
        fabric.mailbox.serve(&fabric);
        Ok(Channels { fabric: Some(fabric), requests })
    }

    /// The fabric, or a refusal that says how to switch channels on.
    pub(crate) fn on(&self) -> Result<&Arc<Fabric>, Problem> {
        self.fabric.as_ref().ok_or_else(problems::off)
    }

    pub(crate) fn report(&self) -> Option<ChannelsReport> {
        self.fabric.as_ref().map(|fabric| fabric.report())
    }
}

impl Fabric {
    fn start(
        config: &ChannelsConfig,
        requests: Requests,
        board: Arc<Board>,
        timeline: Arc<Recorder>,
        ending: &Ending,
    ) -> Result<Fabric, DaemonError> {
        let failed = |error: std::io::Error| DaemonError::channels(error);
        let mailbox = Arc::new(Mailbox::new(ending).map_err(failed)?);
        let host = config.name().expect("checked with the configuration");
        let sockets = Sockets::new().map_err(failed)?;
        let path = Path::open(config.kernel_path.as_ref());
        path.iter().for_each(|path| mailbox.hear_path(path.inbox()));
        let network = Network::open(config, host, &mailbox)?;
        let mailbox_wake = mailbox.waker();
        Ok(Fabric {
            settings: Settings::new(config.clone()),
            network,
            renewal: Renewal::default(),
            mailbox,
            registry: Lock::default(),
            asked: Asked::default(),
            answering: Answering::default(),
            owned: Owned::default(),
            path,
            monitors: Monitors::new(board.clone()).map_err(failed)?,
            policies: Policies::default(),
            reports: Reports::default(),
            lending: Lending::new(mailbox_wake),
            closer: Closer::default(),
            sockets,
            requests,
            board,
            timeline,
            stopping: AtomicBool::new(false),
            totals: Totals::default(),
        })
    }

    /// Passes readings of streams of packets to the policies of this host.
    pub(crate) fn stream_readings(&self, readings: &[Reading]) {
        if readings.is_empty() || self.policies.count() == 0 {
            return;
        }
        self.network.manager(|manager, now| {
            readings
                .iter()
                .for_each(|reading| manager.handle(Input::Reading(None, self.network.host.clone(), *reading), now));
        });
    }

    /// The configuration in force.
    fn config(&self) -> Arc<ChannelsConfig> {
        self.settings.get()
    }

    fn registry(&self) -> registry::Locked<'_> {
        lock(&self.registry)
    }

    /// Ends every connection with everything opened under it, and announces to other hosts that this one leaves.
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
