//! Jobs as an iterator: `for job in session.jobs() { … }`.

use qfabric_types::{Foresight, Nanos};

use crate::grid::Job;
use crate::session::Session;

/// Endless iterator over a session's jobs. A job ends when the caller asks for the next one, or drops the iterator.
pub struct Jobs<'a> {
    session: &'a mut Session,
    running: bool,
    next: Foresight,
}

impl<'a> Jobs<'a> {
    pub(crate) fn new(session: &'a mut Session) -> Self {
        Jobs { session, running: false, next: Foresight::Nothing }
    }

    /// Sets the foresight for the next job. It is sent with the end of the current job.
    pub fn expect_next(&mut self, known: Foresight) {
        self.next = known;
    }

    /// Predicted lateness of the current job; see [`Session::predicted_lateness`].
    pub fn predicted_lateness(&self) -> Option<Nanos> {
        self.session.predicted_lateness()
    }

    /// Skips the current job: the next step of the iterator is the job after it.
    pub fn skip(&mut self) {
        if std::mem::take(&mut self.running) {
            self.session.skip();
        }
    }

    /// A checkpoint in the code of the current job; see [`Session::checkpoint`].
    pub fn checkpoint(&mut self, done: f64, levels: u8) -> bool {
        self.running && self.session.checkpoint(done, levels)
    }

    /// The session that the iterator runs.
    pub fn session(&self) -> &Session {
        self.session
    }

    fn end_running(&mut self) {
        if std::mem::take(&mut self.running) {
            self.session.end_cycle(std::mem::take(&mut self.next));
        }
    }
}

impl Iterator for Jobs<'_> {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        self.end_running();
        let job = self.session.wait_for_next_job();
        self.running = true;
        Some(job)
    }
}

impl Drop for Jobs<'_> {
    fn drop(&mut self) {
        self.end_running();
    }
}
