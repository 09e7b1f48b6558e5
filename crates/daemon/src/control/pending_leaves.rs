//! A request to end an application is answered once its threads are back under their former scheduler.
//!
//! A thread that is caught in an overrun leaves a little later (`qfabric_linux::leaving`), as a rule within a period.

use qfabric_types::{AppId, Instant, Nanos, ThreadId};

use super::command::Reply;
use super::engine::Engine;
use crate::auth::Peer;

/// The longest that an answer waits: most departures are far shorter, and none should seem a daemon that hangs.
const PATIENCE: Nanos = Nanos::from_millis(2_000);

/// An application that has ended, and who waits for its threads.
pub(super) struct Parting {
    threads: Vec<ThreadId>,
    until: Instant,
    reply: Reply<()>,
}

impl Engine {
    /// Ends the application; answers at once where that is refused.
    pub(super) fn part(&mut self, peer: Peer, app: AppId, reply: Reply<()>, now: Instant) {
        if let Err(problem) = self.check_owner(peer, app) {
            let _ = reply.send(Err(problem));
            return;
        }
        let threads = self.apps.threads_of(app).collect();
        self.leave(app, now);
        self.partings.push(Parting { threads, until: now + PATIENCE, reply });
    }

    /// Answers those whose threads are back.
    pub(super) fn answer_partings(&mut self, now: Instant) {
        let core = &self.core;
        let is_over = |parting: &mut Parting| {
            now >= parting.until || !parting.threads.iter().any(|thread| core.is_leaving(*thread))
        };
        for parting in self.partings.extract_if(.., is_over) {
            let _ = parting.reply.send(Ok(()));
        }
    }

    /// When an answer waits no longer.
    pub(super) fn next_answer(&self) -> Option<Instant> {
        self.partings.iter().map(|parting| parting.until).min()
    }
}
