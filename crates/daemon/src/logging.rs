//! Writes log lines to standard error, as text for people or as JSON for programs; to the journal if systemd has
//! connected standard error to it.
//!
//! Lines go through a bounded queue to a thread that writes them. If standard error blocks (a full pipe, a stopped
//! terminal), only that thread waits. A line that finds the queue full is dropped and counted.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::prelude::*;

use crate::config::{Log, LogFormat};
use crate::handshakes::Handshakes;
use crate::journal::{Journal, JournalFormat};

/// Environment variable that overrides the configured filter.
const FILTER_VARIABLE: &str = "QFABRIC_LOG";

/// Silences log lines of Zenoh that need no action. For every connection it logs that it checks the certificate
/// against the authority and not against a host name (the access list does that), that gossip is off (as intended),
/// and its own ids and addresses. The configured filter can turn these lines on again.
const QUIET: &str = "zenoh=warn,zenoh::net::routing::hat=error,zenoh_link_tls=error";

/// Capacity of the queue, in lines: enough for the start of a service with many applications.
const QUEUE_LINES: usize = 4_096;

static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Number of lines dropped because the queue was full.
pub(crate) fn dropped() -> u64 {
    DROPPED.get().map_or(0, |dropped| dropped.dropped_lines() as u64)
}

/// Starts logging. If the program that embeds the service has a logger already, that logger stays. Dropping the
/// returned guard writes the queued lines; this takes at most a second.
pub(crate) fn start(log: &Log) -> WorkerGuard {
    let configured = || std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| log.filter.clone());
    let filter = log.level.map_or_else(configured, |level| level.name().to_owned());
    let (filter, invalid) = match EnvFilter::try_new(format!("{QUIET},{filter}")) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some((filter, error))),
    };
    let colours = std::io::stderr().is_terminal();
    let queue = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUE_LINES).thread_name("qf-log");
    let journal = if log.format == LogFormat::Text { Journal::of_stderr() } else { None };
    let to_journal = journal.is_some();
    let (queue, written) = match journal {
        Some(journal) => queue.finish(journal),
        None => queue.finish(std::io::stderr()),
    };
    let _ = DROPPED.set(queue.error_counter());
    let lines = tracing_subscriber::fmt::layer().with_writer(queue).with_ansi(colours);
    let all = tracing_subscriber::registry().with(Handshakes.with_filter(Handshakes::filter()));
    // `try_init` fails if the program has a logger already.
    let _ = match log.format {
        LogFormat::Text if to_journal => {
            let lines = lines.with_ansi(false).event_format(JournalFormat).with_filter(filter);
            all.with(lines).try_init()
        }
        LogFormat::Text => all.with(lines.with_target(false).with_filter(filter)).try_init(),
        LogFormat::Json => all.with(lines.json().with_filter(filter)).try_init(),
    };
    if let Some((filter, error)) = invalid {
        tracing::warn!(filter, %error, "invalid log filter, using \"info\"; correct log.filter or QFABRIC_LOG");
    }
    written
}
