//! Writes notes to the log, a warning of one cause for one application once a minute: a program of a hundred threads
//! that cannot be reserved is one line with what to do about it, not a hundred.

use std::collections::HashMap;

use qfabric_host::HostEvent;
use qfabric_linux::ApplyError;
use qfabric_types::{AppId, Instant, Nanos};

use super::notes::{self, Note};

/// The same warning comes no sooner.
const AGAIN: Nanos = Nanos::from_millis(60_000);
/// Causes remembered; beyond that all are forgotten, and may be told again.
const REMEMBERED: usize = 1_024;

/// What is told, of which application.
type Cause = (Option<AppId>, &'static str);

/// The end of the queue of notes that writes the log.
#[derive(Default)]
pub(crate) struct Logbook {
    told: HashMap<Cause, Told>,
}

struct Told {
    at: Instant,
    /// How often it came since, unsaid.
    unsaid: u64,
}

impl Logbook {
    /// Logs a note, unless its cause was told a moment ago.
    pub fn log(&mut self, note: Note, now: Instant) {
        match self.due(&note, now) {
            Some(0) => notes::log(note),
            Some(unsaid) => {
                tracing::warn!(unsaid, "the next line came this often since it was last logged");
                notes::log(note);
            }
            None => {}
        }
    }

    /// Whether the note is to be logged, and how often the same came unsaid before.
    fn due(&mut self, note: &Note, now: Instant) -> Option<u64> {
        let Some(cause) = cause(note) else { return Some(0) };
        if self.told.len() >= REMEMBERED {
            self.told.clear();
        }
        match self.told.get_mut(&cause) {
            Some(told) if now < told.at + AGAIN => {
                told.unsaid += 1;
                None
            }
            _ => Some(self.told.insert(cause, Told { at: now, unsaid: 0 }).map_or(0, |told| told.unsaid)),
        }
    }
}

/// What may come often, by its cause; none: every one is logged.
fn cause(note: &Note) -> Option<Cause> {
    Some(match note {
        Note::NotApplied { app, error } => (*app, kind(error)),
        Note::Rescued { .. } => (None, "rescued"),
        Note::Silenced { app } => (Some(*app), "silenced"),
        Note::BirthsDropped { app, .. } => (Some(*app), "births"),
        Note::RecordsLost { .. } => (None, "records"),
        Note::NotObserved { .. } => (None, "not observed"),
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
    fn a_cause_is_told_once_for_all_threads_of_an_application() {
        let (mut logbook, now) = (Logbook::default(), Instant::new(5));
        let told = (0..100).filter(|thread| logbook.due(&foreign(1, *thread), now).is_some()).count();
        assert_eq!(told, 1);
        assert_eq!(logbook.due(&foreign(2, 7), now), Some(0), "another application");
        let pinned = Note::NotApplied { app: Some(AppId(1)), error: ApplyError::Gone { thread: ThreadId(7) } };
        assert_eq!(logbook.due(&pinned, now), Some(0), "another cause");
    }

    #[test]
    fn what_came_unsaid_is_counted_the_next_time() {
        let mut logbook = Logbook::default();
        let answers = [0, 1, 2, 60_001].map(|ms| logbook.due(&foreign(1, 7), Instant::ZERO + Nanos::from_millis(ms)));
        assert_eq!(answers, [Some(0), None, None, Some(2)]);
    }

    #[test]
    fn what_happens_once_is_always_told() {
        let mut logbook = Logbook::default();
        for _ in 0..3 {
            assert_eq!(logbook.due(&Note::RingTaken { app: AppId(1) }, Instant::ZERO), Some(0));
        }
    }

    #[test]
    fn no_more_causes_than_a_bound_are_remembered() {
        let mut logbook = Logbook::default();
        for app in 0..3 * REMEMBERED as u64 {
            logbook.due(&foreign(app, 1), Instant::ZERO);
        }
        assert!(logbook.told.len() <= REMEMBERED);
    }
}
