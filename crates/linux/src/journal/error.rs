//! Errors of the journal, each with its next step.

use std::io;
use std::path::PathBuf;

use qfabric_types::api::Problem;

use crate::hrtick;
use crate::power::Knob;

#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum JournalError {
    /// The file or its folder cannot be used.
    Io {
        path: PathBuf,
        source: io::Error,
    },
    Held {
        path: PathBuf,
    },
    /// This program would not write such content.
    Invalid {
        path: PathBuf,
        /// Line number; 0 for the file itself.
        line: usize,
        why: String,
    },
}

impl JournalError {
    /// The error with its next step.
    pub fn problem(&self) -> Problem {
        match self {
            JournalError::Io { path, source } => Problem::new(
                "journal",
                format!("journal {}: {source}", path.display()),
                "check the owner of its folder, and the free space there",
            ),
            JournalError::Held { path } => Problem::new(
                "journal_held",
                format!("journal {} belongs to a running service", path.display()),
                "stop that service first",
            ),
            JournalError::Invalid { path, line, why } => Problem::new(
                "journal_invalid",
                format!("journal {}, line {line}: {why}; nothing was changed", path.display()),
                "inspect the file and remove it",
            ),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The change could not be recorded in the journal, so it was not made.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel does not have the feature, or refuses to switch it.
    #[error("the scheduler feature cannot be switched: {0:?}")]
    Refused(hrtick::State),
}

/// A knob was not turned.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// The change could not be recorded in the journal, so it was not made.
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("{0} does not exist; this kernel or processor has no such knob")]
    Absent(Knob),
    /// A value that `restore` would refuse is not written.
    #[error("{knob} holds {was:?} and should hold {value:?}, of which one is no value of this knob; it stays as it is")]
    Odd { knob: Knob, was: String, value: String },
    #[error("{0}")]
    Refused(io::Error),
    /// The kernel or the firmware accepted the value without an error, and did not take it.
    #[error("{knob} accepted {value:?} and holds {now:?}; it does not obey, and has its former value again")]
    Disobeyed { knob: Knob, value: String, now: String },
}
