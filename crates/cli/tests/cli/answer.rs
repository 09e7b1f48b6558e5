//! The result of a command: exit code and output.

use std::process::{Command, Output};

use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Answer {
    /// Exit code; -1 if a signal ended the command.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Answer {
    /// Runs a command to its end.
    pub(crate) fn of(command: &mut Command) -> Answer {
        Answer::from(command.output().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Panics unless the exit code is `code` and each of `parts` is on stdout or stderr.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for part in parts {
            assert!(self.out.contains(part) || self.err.contains(part), "{self:?} lacks {part:?}");
        }
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Answer {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Answer { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}
