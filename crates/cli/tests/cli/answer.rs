//! What a command answered.

use std::process::{Command, Output};

use serde_json::Value;

/// Exit code and texts.
#[derive(Debug)]
pub struct Answer {
    /// Exit code; -1 where a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Answer {
    /// Of a command, run to its end.
    pub fn of(command: &mut Command) -> Answer {
        Answer::from(command.output().unwrap())
    }

    /// Its output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Fails unless it ended with `code` and said all of `parts` on either stream.
    #[track_caller]
    pub fn expect(&self, code: i32, parts: &[&str]) {
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
