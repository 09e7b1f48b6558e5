//! Logs on standard error, for people or for programs.
//!
//! Lines go through a bounded queue to a thread that writes them: where nobody reads standard error (a full pipe, a
//! stopped terminal), that thread alone waits. What finds the queue full is dropped and counted.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::prelude::*;

use crate::config::{Log, LogFormat};
use crate::handshakes::Handshakes;

/// Overrides the configured filter.
const FILTER_VARIABLE: &str = "QFABRIC_LOG";

/// What Zenoh says without need: at each call that a certificate is checked against the authority and not against a host's name,
/// which is what the access list is for; that gossip is off, which is wanted; its own numbers and addresses. Whoever wants to see
/// it says so in the filter.
const QUIET: &str = "zenoh=warn,zenoh::net::routing::hat=error,zenoh_link_tls=error";

/// Lines that wait to be written: the start of a service with many applications fits.
const WAITING: usize = 4_096;

static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Lines that found the queue full.
pub(crate) fn dropped() -> u64 {
    DROPPED.get().map_or(0, |dropped| dropped.dropped_lines() as u64)
}

/// Starts logging. Where a program that embeds the service logs already, that goes on. What waits is written when the
/// answer is dropped, which takes a second at most.
pub(crate) fn start(log: &Log) -> WorkerGuard {
    let filter = std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| log.filter.clone());
    let (filter, nonsense) = match EnvFilter::try_new(format!("{QUIET},{filter}")) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some((filter, error))),
    };
    let colours = std::io::stderr().is_terminal();
    let queue = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING).thread_name("qf-log");
    let (queue, written) = queue.finish(std::io::stderr());
    let _ = DROPPED.set(queue.error_counter());
    let lines = tracing_subscriber::fmt::layer().with_writer(queue).with_ansi(colours);
    let all = tracing_subscriber::registry().with(Handshakes.with_filter(Handshakes::filter()));
    // An error says that logging was started before.
    let _ = match log.format {
        LogFormat::Text => all.with(lines.with_target(false).with_filter(filter)).try_init(),
        LogFormat::Json => all.with(lines.json().with_filter(filter)).try_init(),
    };
    if let Some((filter, error)) = nonsense {
        tracing::warn!(filter, %error, "log.filter is not understood; using \"info\"");
    }
    written
}
