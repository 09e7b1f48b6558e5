//! Runs the binary under test.

use std::path::Path;
use std::process::Command;

pub(crate) use crate::answer::Answer;

/// The binary, with an environment in which it looks for a daemon and for profiles in `folder`.
pub(crate) fn qfabric(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric"));
    command.env("XDG_RUNTIME_DIR", folder).env("XDG_DATA_HOME", folder).env_remove("QFABRIC_SOCKET");
    command
}

/// Runs the binary with the words of `line`, in a new folder.
pub(crate) fn answer(line: &str) -> Answer {
    let folder = tempfile::tempdir().unwrap();
    Answer::of(qfabric(folder.path()).args(line.split_whitespace()))
}
