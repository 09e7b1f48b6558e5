//! Answers a request to end an application when its threads are back under their former scheduler.
//!
//! A thread that has overrun its budget leaves later (`qfabric_linux::leaving`), usually within a period.

use qfabric_types::{AppId, Instant, Nanos, ThreadId};

use super::command::Reply;
use super::engine::Engine;
use crate::auth::Peer;

/// Longest wait for an answer. Most departures are far shorter, and a longer wait would look as if the daemon hung.
const MAX_WAIT: Nanos = Nanos::from_millis(2_000);

/// The answer to a request to end an application; waits until the application's threads have left.
pub(super) struct PendingLeave {
    threads: Vec<ThreadId>,
    until: Instant,
    reply: Reply<()>,
}

impl Engine {
    /// Ends the application. Answers at once if the request is refused.
    pub(super) fn leave_then_answer(&mut self, peer: Peer, app: AppId, reply: Reply<()>, now: Instant) {
        if let Err(problem) = self.check_owner(peer, app) {
            let _ = reply.send(Err(problem));
            return;
        }
        let threads = self.apps.threads_of(app).collect();
        self.leave(app, now);
        self.pending_leaves.push(PendingLeave { threads, until: now + MAX_WAIT, reply });
    }

    /// Answers the requests whose threads have left.
    pub(super) fn answer_pending_leaves(&mut self, now: Instant) {
        let core = &self.core;
        let is_over = |pending: &mut PendingLeave| {
            now >= pending.until || !pending.threads.iter().any(|thread| core.is_leaving(*thread))
        };
        for pending in self.pending_leaves.extract_if(.., is_over) {
            let _ = pending.reply.send(Ok(()));
        }
    }

    /// The earliest time at which an answer stops waiting.
    pub(super) fn next_answer(&self) -> Option<Instant> {
        self.pending_leaves.iter().map(|pending| pending.until).min()
    }
}
