//! Logs on standard error, for people or for programs.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::prelude::*;

use crate::config::{Log, LogFormat};
use crate::handshakes::Handshakes;

/// Overrides the configured filter.
const FILTER_VARIABLE: &str = "QFABRIC_LOG";

/// Zenoh warns at each call that a certificate is checked against the authority and not against a host's name: that is
/// what the access list is for. Whoever wants to see it says so in the filter.
const QUIET: &str = "zenoh_link_tls=error";

/// Starts logging. Where a program that embeds the service logs already, that goes on.
pub(crate) fn start(log: &Log) {
    let filter = std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| log.filter.clone());
    let (filter, nonsense) = match EnvFilter::try_new(format!("{QUIET},{filter}")) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some((filter, error))),
    };
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let all = tracing_subscriber::registry().with(Handshakes.with_filter(Handshakes::filter()));
    // An error says that logging was started before.
    let _ = match log.format {
        LogFormat::Text => all.with(lines.with_target(false).with_filter(filter)).try_init(),
        LogFormat::Json => all.with(lines.json().with_filter(filter)).try_init(),
    };
    if let Some((filter, error)) = nonsense {
        tracing::warn!(filter, %error, "log.filter is not understood; using \"info\"");
    }
}
