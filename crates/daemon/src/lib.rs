//! The service that runs on each host: threads, sockets and timers around a [`qfabric_host::Host`], which has none
//! of them.
//!
//! | thread | task | may wait for |
//! |---|---|---|
//! | api (main, or qf-api) | HTTP, ring hand-out, credentials, metrics, the web page, SIGHUP | callers, the control thread, its workers |
//! | the api's workers | requests that compile, install, ask the kernel, or lock pages | the kernel, locks, the control thread |
//! | qf-control | host, mechanism, rings, observer | its own event sources only |
//! | qf-signals | SIGTERM and SIGINT; ends the process if another thread hangs | signals only |
//! | qf-channels | `channels.sock`: events from and to applications | nothing |
//! | qf-ping | answers while other hosts ask | other hosts, within a bound |
//! | qf-monitor, qf-policies | watched attributes; policies of channels | files of the kernel |
//! | qf-renewal | joins the network again when its session is used up or could not be opened | the network |
//! | qf-configured | contracts of the configuration: units and control groups | files of the kernel, the control thread |
//! | qf-contracts | joint contracts with other hosts | other hosts, within a bound |
//! | qf-ecalls | the dispatcher of events | its own event sources only |
//! | qf-ecalls-far | handlers of and on other hosts | the kernel, other hosts, within a bound |
//! | qf-handler | handlers of one user, one thread or more | nothing |
//! | qf-ecalls-links, qf-ecalls-end | attach handlers to new interfaces; remove programs from the kernel | the kernel |
//! | qf-net, qf-answer | interfaces; measurements of delays | netlink, packets |
//! | qf-memory, qf-pressure | control groups of reserves; notices of pressure | files of the kernel |
//! | qf-books, qf-energy | admission and energy accounts | files of the kernel |
//! | qf-close | descriptors of one user | that user, without a bound |
//!
//! Callers reach the control thread only through a bounded queue. Applications under contract reach it only through
//! their own rings, and the daemon treats the contents of a ring as hostile. If the service dies, threads keep
//! their last reservation: the kernel continues to replenish it, so no thread is stuck. The next start restores the
//! threads from the journal.
#![forbid(unsafe_code)]

mod acceptor;
pub mod answer;
mod api;
mod auth;
mod books;
mod channels;
mod closer;
mod config;
mod configured;
mod connected;
mod contracts;
mod control;
mod ecalls;
mod embedded;
mod ending;
mod energy;
mod folder;
mod journal;
mod logging;
mod memory;
mod metrics;
mod net;
mod notify;
mod openapi;
mod pids;
mod problem;
mod reload;
mod service;
mod signals;
mod startup;
mod timeline;
mod web;

pub use channels::{ChannelsConfig, EngineName, KernelPathConfig, Lend, Mode, Right, Rule, Scouting};
pub use config::{
    Api, CONFIG_PATH, Config, Contracts, Control, Fallback, InvalidConfig, Log, LogFormat, LogLevel, MechanismConfig,
    Reclaim, Source,
};
pub use configured::ContractConfig;
pub use contracts::{DefaultConsent, InitiatorCap, JointConfig, LinkKey};
pub use ecalls::EcallsConfig;
pub use embedded::Embedded;
pub use energy::{EnergyConfig, pin_clock, read_model};
pub use memory::{MemoryAmount, MemoryConfig};
pub use metrics::MetricsConfig;
pub use net::{LinkConfig, NetConfig, Rate};
pub use qfabric_types::MechanismName;
pub use startup::DaemonError;
pub use web::WebConfig;

use tokio::signal::unix::{SignalKind, signal};

/// Runs the service in the foreground until SIGTERM or SIGINT, then restores every thread. On SIGHUP the service
/// reads the access list again.
pub fn run(config: Config) -> Result<(), DaemonError> {
    let same = config.clone();
    run_and_reload(config, move || Ok(same.clone()))
}

/// As [`run`]. On SIGHUP the service calls `read` for the new configuration and applies the sections that can change
/// while it runs.
pub fn run_and_reload(
    config: Config,
    read: impl Fn() -> Result<Config, InvalidConfig> + Send + 'static,
) -> Result<(), DaemonError> {
    // Created first and dropped last, so that log lines of the shutdown are written, too.
    let _log = logging::start(&config.log);
    survive_hangups();
    let failed = |error| DaemonError::Engine(format!("cannot wait for signals: {error}"));
    let ending = ending::Ending::new().map_err(failed)?;
    // Lives to the end of this function.
    let _signals = signals::Signals::start(&ending).map_err(failed)?;
    let service = service::Service::prepare(&config, startup::Keep::WithSockets, &ending)?;
    let socket = service.socket();
    let ready = || {
        tracing::info!(socket = %socket.display(), "serving");
        notify::notify(notify::READY);
    };
    let reload = || {
        let hangups = signal(SignalKind::hangup());
        let ignored = |error: &_| tracing::error!(%error, "SIGHUP is ignored; restart to apply a new configuration");
        let hangups = hangups.inspect_err(ignored).ok()?;
        Some(reload::Reload { read: Some(Box::new(read)), running: config.clone(), hangups })
    };
    service.serve(service::ServeHooks { ready, reload })
}

/// From now on SIGHUP does not end this process: tokio never removes an installed signal handler.
fn survive_hangups() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let installed = runtime.and_then(|runtime| runtime.block_on(async { signal(SignalKind::hangup()).map(drop) }));
    if let Err(error) = installed {
        tracing::error!(%error, "SIGHUP would end this service without restoring any thread; use SIGTERM");
    }
}
