//! The per-host service: real threads, sockets and timers around a pure [`qfabric_host::Host`].
//!
//! | thread | does | may wait for |
//! |---|---|---|
//! | api | HTTP, ring hand-out, credentials, metrics | callers, the control thread |
//! | channels | `channels.sock`: events of applications, in and out | nobody |
//! | control | host, mechanism, rings, observer | its own sources alone |
//! | signals | SIGTERM and SIGINT; ends the process where another thread hangs | signals alone |
//!
//! Callers never reach the control thread but through a bounded queue, and applications under contract never
//! but through rings of their own, whose contents are treated as hostile. If the service dies, threads keep
//! their last reservation: it goes on being replenished, so that nobody is stuck; the next start puts them
//! back from the journal.
#![forbid(unsafe_code)]

mod api;
mod auth;
mod books;
mod channels;
mod closer;
mod config;
mod control;
mod ecalls;
mod embedded;
mod ending;
mod folder;
mod handshakes;
mod logging;
mod metrics;
mod net;
mod notify;
mod openapi;
mod problem;
mod reload;
mod service;
mod signals;
mod startup;

pub use channels::{ChannelsConfig, EngineName, Lend, Mode, Right, Rule, Scouting};
pub use config::{
    Api, CONFIG_PATH, Config, Contracts, Control, Fallback, InvalidConfig, Log, LogFormat, MechanismConfig, Reclaim,
};
pub use ecalls::EcallsConfig;
pub use embedded::Embedded;
pub use qfabric_types::MechanismName;
pub use startup::DaemonError;

use tokio::signal::unix::{SignalKind, signal};

/// Runs the service in the foreground until SIGTERM or SIGINT; then puts everything back. At SIGHUP the access list is
/// read again.
pub fn run(config: Config) -> Result<(), DaemonError> {
    let same = config.clone();
    run_and_reload(config, move || Ok(same.clone()))
}

/// As [`run`]; at SIGHUP `read` is asked for the configuration again, and what can change while the service runs is
/// changed.
pub fn run_and_reload(
    config: Config,
    read: impl Fn() -> Result<Config, InvalidConfig> + Send + 'static,
) -> Result<(), DaemonError> {
    // First made, last dropped: what the end of the service says is written, too.
    let _log = logging::start(&config.log);
    survive_hangups();
    let failed = |error| DaemonError::Engine(format!("cannot wait for signals: {error}"));
    let ending = ending::Ending::new().map_err(failed)?;
    // To the end of this function.
    let _signals = signals::Signals::start(&ending).map_err(failed)?;
    let service = service::Service::prepare(&config, startup::Keep::WithSockets, &ending)?;
    let socket = service.socket();
    let ready = || {
        tracing::info!(socket = %socket.display(), "serving");
        notify::notify(notify::READY);
    };
    let reload = || {
        let hangups = signal(SignalKind::hangup());
        let hangups = hangups.inspect_err(|error| tracing::error!(%error, "SIGHUP is ignored")).ok()?;
        Some(reload::Reload { read: Some(Box::new(read)), running: config.clone(), hangups })
    };
    service.serve(service::Beside { ready, reload })
}

/// From now on SIGHUP does not end this process: a handler that was installed once stays.
fn survive_hangups() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let installed = runtime.and_then(|runtime| runtime.block_on(async { signal(SignalKind::hangup()).map(drop) }));
    if let Err(error) = installed {
        tracing::error!(%error, "SIGHUP would end this service without putting anything back; use SIGTERM");
    }
}
