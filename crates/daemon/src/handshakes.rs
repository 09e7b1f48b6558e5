//! Counts connections from other hosts that failed in the TLS handshake: the certificate is from another authority
//! or has expired. Zenoh reports these failures only in its log, together with an unrelated hint, so this file
//! reads the log.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qfabric_sync::{Lock, rank};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer};

/// Shortest time between two of our log lines: a host that retries does so every second.
const LOG_INTERVAL: Duration = Duration::from_secs(30);
/// Text that Zenoh appends to the message of every failed connection.
const HINT: &str = ". Hint: increase";

static REFUSED: AtomicU64 = AtomicU64::new(0);
static LAST_LOGGED: Lock<Option<Instant>, { rank::LOG }> = Lock::new(None);

pub(crate) fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

pub(crate) struct Handshakes;

impl Handshakes {
    /// The log lines of Zenoh that contain handshake failures.
    pub(crate) fn filter() -> Targets {
        Targets::new().with_target("zenoh_link_tls", Level::WARN)
    }
}

impl<S: Subscriber> Layer<S> for Handshakes {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if let Some((why, _)) = text.0.split_once(HINT) {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            if log_is_due() {
                tracing::warn!(why, "refused the TLS handshake of another host; compare certificates, see its log");
            }
        }
    }
}

fn log_is_due() -> bool {
    let mut last = LAST_LOGGED.lock();
    let due = last.is_none_or(|last| last.elapsed() >= LOG_INTERVAL);
    if due {
        *last = Some(Instant::now());
    }
    due
}

/// The message of a log event.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;

    #[test]
    fn only_zenohs_handshake_failures_are_counted() {
        let before = refused();
        let listening = tracing_subscriber::registry().with(Handshakes.with_filter(Handshakes::filter()));
        tracing::subscriber::with_default(listening, || {
            tracing::warn!(target: "zenoh_link_tls::unicast", "{}. Hint: increase the system open file limit.", "UnknownIssuer");
            tracing::warn!(target: "zenoh_link_tls::unicast", "Skipping name verification");
            tracing::warn!(target: "elsewhere", "no. Hint: increase");
        });
        assert_eq!(refused() - before, 1);
    }
}
