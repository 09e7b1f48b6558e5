//! Connections from other hosts that were refused in the handshake: a certificate of another authority, or one that has
//! expired. Zenoh tells that to its log only, with a hint that is about something else; so the log is listened to.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qfabric_sync::{Lock, rank};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer};

/// Who retries does it every second.
const SAY: Duration = Duration::from_secs(30);
/// What Zenoh says of every connection that did not come about.
const HINT: &str = ". Hint: increase";

static REFUSED: AtomicU64 = AtomicU64::new(0);
static SAID: Lock<Option<Instant>, { rank::LOG }> = Lock::new(None);

/// How many there were.
pub(crate) fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Listens to the log.
pub(crate) struct Handshakes;

impl Handshakes {
    /// What it has to hear.
    pub fn filter() -> Targets {
        Targets::new().with_target("zenoh_link_tls", Level::WARN)
    }
}

impl<S: Subscriber> Layer<S> for Handshakes {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if let Some((why, _)) = text.0.split_once(HINT) {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            if is_time_to_say_so() {
                tracing::warn!(why, "a connection from another host was refused; its own log says more");
            }
        }
    }
}

fn is_time_to_say_so() -> bool {
    let mut said = SAID.lock();
    let due = said.is_none_or(|said| said.elapsed() >= SAY);
    if due {
        *said = Some(Instant::now());
    }
    due
}

/// An event's message.
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
    fn what_zenoh_says_of_a_handshake_is_counted_and_other_words_are_not() {
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
