//! Writes log lines to standard error, as text for people or as JSON for programs; to the journal if systemd has
//! connected standard error to it.
//!
//! Lines go through a bounded queue to a thread that writes them. If standard error blocks (a full pipe, a stopped
//! terminal), only that thread waits. A line that finds the queue full is dropped and counted.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing::Subscriber;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, reload};

use crate::config::{Log, LogFormat};
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

type Replace = dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync;

/// Replaces the filter of the running logger.
static CHANGE: OnceLock<Box<Replace>> = OnceLock::new();

/// Applies the configured filter to the running logger, unless the command line or the environment sets another. Fails
/// if the filter is invalid, or if the program that embeds the service has its own logger.
pub(crate) fn set_filter(log: &Log) -> Result<(), String> {
    let filter = filter_of(log).map_err(|(filter, error)| format!("{filter:?}: {error}"))?;
    let change = CHANGE.get().ok_or("the program that embeds the service has its own logger")?;
    change(filter)
}

/// The filter in force by `log`, the command line and the environment; or the invalid text, and why it is invalid.
fn filter_of(log: &Log) -> Result<EnvFilter, (String, ParseError)> {
    let configured = || std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| log.filter.clone());
    let filter = log.level.map_or_else(configured, |level| level.name().to_owned());
    EnvFilter::try_new(format!("{QUIET},{filter}")).map_err(|error| (filter, error))
}

/// A filter that can be replaced, and the function that replaces it.
fn replaceable<S>(
    filter: EnvFilter,
) -> (reload::Layer<EnvFilter, S>, impl Fn(EnvFilter) -> Result<(), String> + Send + Sync + 'static)
where
    S: Subscriber + 'static,
{
    let (filter, handle) = reload::Layer::new(filter);
    (filter, move |new| handle.reload(new).map_err(|error| error.to_string()))
}

/// Starts logging. If the program that embeds the service has a logger already, that logger stays. Dropping the
/// returned guard writes the queued lines; this takes at most a second.
pub(crate) fn start(log: &Log) -> WorkerGuard {
    let (filter, invalid) = match filter_of(log) {
        Ok(filter) => (filter, None),
        Err(invalid) => (EnvFilter::new("info"), Some(invalid)),
    };
    let (filter, change) = replaceable(filter);
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
    let all = tracing_subscriber::registry();
    // `try_init` fails if the program has a logger already.
    let started = match log.format {
        LogFormat::Text if to_journal => {
            let lines = lines.with_ansi(false).event_format(JournalFormat).with_filter(filter);
            all.with(lines).try_init()
        }
        LogFormat::Text => all.with(lines.with_target(false).with_filter(filter)).try_init(),
        LogFormat::Json => all.with(lines.json().with_filter(filter)).try_init(),
    };
    if started.is_ok() {
        let _ = CHANGE.set(Box::new(change));
    }
    if let Some((filter, error)) = invalid {
        tracing::warn!(filter, %error, "invalid log filter, using \"info\"; correct log.filter or QFABRIC_LOG");
    }
    written
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing_subscriber::layer::{Context, Layer};

    use super::*;

    struct Count(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_new_filter_holds_for_the_running_logger() {
        let lines = Arc::<AtomicUsize>::default();
        let (filter, change) = replaceable(EnvFilter::new("warn"));
        let logger = tracing_subscriber::registry().with(Count(lines.clone()).with_filter(filter));
        let _guard = tracing::subscriber::set_default(logger);
        tracing::info!("dropped");
        assert_eq!(lines.load(Ordering::Relaxed), 0);
        change(EnvFilter::new("info")).unwrap();
        tracing::info!("counted");
        assert_eq!(lines.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_invalid_filter_is_refused_with_its_text() {
        let log = Log { filter: "a=b=c".to_owned(), ..Log::default() };
        assert!(std::env::var_os(FILTER_VARIABLE).is_some() || set_filter(&log).unwrap_err().contains("a=b=c"));
    }
}
