//! Jobs as an iterator: `for job in session.jobs() { … }`.

use qfabric_types::{Foresight, Nanos};

use crate::grid::Job;
use crate::session::Session;

/// Endless iterator over a session's jobs. A job ends when the next one is asked for, or when the iterator
/// is dropped.
pub struct Jobs<'a> {
    session: &'a mut Session,
    running: bool,
    next: Foresight,
}

impl<'a> Jobs<'a> {
    pub(crate) fn new(session: &'a mut Session) -> Self {
        Jobs { session, running: false, next: Foresight::Nothing }
    }

    /// Says what is known of the next job; it travels with the current one's end.
    pub fn expect_next(&mut self, known: Foresight) {
        self.next = known;
    }

    /// By how much the current job would end late, as [`Session::predicted_lateness`] has it.
    pub fn predicted_lateness(&self) -> Option<Nanos> {
        self.session.predicted_lateness()
    }

    /// Leaves the current job out: the next step goes on with the next one.
    pub fn skip(&mut self) {
        if std::mem::take(&mut self.running) {
            self.session.skip();
        }
    }

    /// The session behind it.
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
