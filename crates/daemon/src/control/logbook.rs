//! Writes notes to the log, and repeats a warning of the same cause and application at most once a minute. So a
//! program with a hundred threads that cannot be reserved gives one line with the remedy, not a hundred.

use std::collections::HashMap;

use qfabric_host::HostEvent;
use qfabric_linux::ApplyError;
use qfabric_types::{AppId, Instant, Nanos};

use super::notes::{self, Note};

/// Shortest time between two lines of the same cause.
const INTERVAL: Nanos = Nanos::from_millis(60_000);
/// Causes remembered. Beyond that all are forgotten, and their warnings may repeat earlier.
const MAX_CAUSES: usize = 1_024;

/// The application, if there is one, and the kind of warning.
type Cause = (Option<AppId>, &'static str);

/// The receiver of notes, which writes the log.
#[derive(Default)]
pub(crate) struct Logbook {
    logged: HashMap<Cause, LastLogged>,
}

struct LastLogged {
    at: Instant,
    /// Notes of this cause since then that were not logged.
    suppressed: u64,
}

impl Logbook {
    /// Logs a note, unless one of the same cause was logged within the last minute.
    pub(crate) fn log(&mut self, note: Note, now: Instant) {
        match self.due(&note, now) {
            Some(0) => notes::log(note),
            Some(suppressed) => {
                tracing::warn!(
                    suppressed,
                    "the warning in the next line was suppressed this many times since it was last logged"
                );
                notes::log(note);
            }
            None => {}
        }
    }

    /// Whether to log the note: `Some` with the number of suppressed notes of the same cause, or `None`.
    fn due(&mut self, note: &Note, now: Instant) -> Option<u64> {
        let Some(cause) = cause(note) else { return Some(0) };
        if self.logged.len() >= MAX_CAUSES {
            self.logged.clear();
        }
        match self.logged.get_mut(&cause) {
            Some(logged) if now < logged.at + INTERVAL => {
                logged.suppressed += 1;
                None
            }
            _ => Some(
                self.logged.insert(cause, LastLogged { at: now, suppressed: 0 }).map_or(0, |logged| logged.suppressed),
            ),
        }
    }
}

/// The cause of a note that may come often. `None`: every such note is logged.
fn cause(note: &Note) -> Option<Cause> {
    Some(match note {
        Note::NotApplied { app, error } => (*app, kind(error)),
        Note::Rescued { .. } => (None, "rescued"),
        Note::Silenced { app } => (Some(*app), "silenced"),
        Note::BirthsDropped { app, .. } => (Some(*app), "births"),
        Note::RecordsLost { .. } => (None, "records"),
        Note::NotObserved { .. } => (None, "not observed"),
        Note::ObservationLost { app, .. } => (Some(*app), "observation lost"),
        Note::Host(HostEvent::TooManyThreads { app, .. }) => (Some(*app), "threads"),
        Note::Host(HostEvent::Ignored { .. }) => (None, "ignored"),
        _ => return None,
    })
}

fn kind(error: &ApplyError) -> &'static str {
    match error {
        ApplyError::Busy { .. } => "busy",
        ApplyError::Gone { .. } => "gone",
        ApplyError::Affinity { .. } => "affinity",
        ApplyError::NoSlots { .. } => "no slots",
        ApplyError::Denied { .. } => "denied",
        ApplyError::Foreign { .. } => "foreign",
        ApplyError::Incapable { .. } => "incapable",
        ApplyError::Ejected { .. } => "ejected",
        ApplyError::Full { .. } => "full",
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::ThreadId;

    use super::*;

    fn foreign(app: u64, thread: i32) -> Note {
        let error = ApplyError::Foreign { thread: ThreadId(thread), policy: "SCHED_FIFO" };
        Note::NotApplied { app: Some(AppId(app)), error }
    }

    #[test]
    fn a_cause_is_logged_once_for_all_threads_of_an_application() {
        let (mut logbook, now) = (Logbook::default(), Instant::new(5));
        let logged = (0..100).filter(|thread| logbook.due(&foreign(1, *thread), now).is_some()).count();
        assert_eq!(logged, 1);
        assert_eq!(logbook.due(&foreign(2, 7), now), Some(0), "another application");
        let pinned = Note::NotApplied { app: Some(AppId(1)), error: ApplyError::Gone { thread: ThreadId(7) } };
        assert_eq!(logbook.due(&pinned, now), Some(0), "another cause");
    }

    #[test]
    fn suppressed_notes_are_counted_in_the_next_line() {
        let mut logbook = Logbook::default();
        let answers = [0, 1, 2, 60_001].map(|ms| logbook.due(&foreign(1, 7), Instant::ZERO + Nanos::from_millis(ms)));
        assert_eq!(answers, [Some(0), None, None, Some(2)]);
    }

    #[test]
    fn notes_without_a_cause_are_always_logged() {
        let mut logbook = Logbook::default();
        for _ in 0..3 {
            assert_eq!(logbook.due(&Note::RingTaken { app: AppId(1) }, Instant::ZERO), Some(0));
        }
    }

    #[test]
    fn the_number_of_remembered_causes_is_bounded() {
        let mut logbook = Logbook::default();
        for app in 0..3 * MAX_CAUSES as u64 {
            logbook.due(&foreign(app, 1), Instant::ZERO);
        }
        assert!(logbook.logged.len() <= MAX_CAUSES);
    }
}
