//! Rivals in C, compiled when a bench begins, if the machine has their libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLAYER: &str = include_str!("rivals/player.h");

/// A library of a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Srt,
    Rist,
}

impl Foreign {
    fn name(self) -> &'static str {
        match self {
            Foreign::Srt => "srt",
            Foreign::Rist => "rist",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Foreign::Srt => include_str!("rivals/srt.c"),
            Foreign::Rist => include_str!("rivals/rist.c"),
        }
    }

    /// Package of the library in Debian.
    fn package(self) -> &'static str {
        match self {
            Foreign::Srt => "libsrt-openssl-dev",
            Foreign::Rist => "librist-dev",
        }
    }

    pub(crate) fn program(self, folder: &Path) -> PathBuf {
        folder.join(self.name())
    }

    /// Compiles the program, unless it is there. The error is one line, with the command that installs the library.
    pub(crate) fn compile(self, folder: &Path) -> Result<(), String> {
        if self.program(folder).exists() {
            return Ok(());
        }
        self.build(folder).map_err(|why| format!("{why}; try: apt-get install gcc {}", self.package()))
    }

    fn build(self, folder: &Path) -> Result<(), String> {
        let source = format!("{}.c", self.name());
        for (name, text) in [("player.h", PLAYER), (&source, self.source())] {
            fs::write(folder.join(name), text).map_err(|error| format!("cannot write {name}: {error}"))?;
        }
        let library = format!("-l{}", self.name());
        let arguments = ["-O2", "-o", self.name(), &source, &library, "-lpthread"];
        let output = Command::new("cc").args(arguments).current_dir(folder).output();
        let output = output.map_err(|error| format!("cc: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| line.contains("error")).unwrap_or(&said).trim();
        if output.status.success() { Ok(()) } else { Err(first.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_compiled_names_the_package() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let refusal = Foreign::Srt.compile(&missing).unwrap_err();
        assert!(refusal.ends_with("try: apt-get install gcc libsrt-openssl-dev"), "{refusal}");
    }
}
