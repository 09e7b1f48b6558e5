//! Exit codes, and the failures that lead to them.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a fault: something that should have worked did not |
//! | 2 | the command line or an input file makes no sense |
//! | 3 | refused by admission, a limit or access rights; nothing was changed |
//! | 4 | no daemon answers, or this host lacks what the command needs |
//! | 126, 127 | the program cannot be executed, cannot be found (the exit codes of a shell) |
//! | 130 | `demo` and `metp bench`: ended by Ctrl-C |
//! | other | `run`, `probe` and `lab`: the exit code of the program; 128 + n if signal n ended the program |

use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

use qfabric_types::api::Problem;

use crate::output;

/// The exit code of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done(pub u8);

impl From<Done> for ExitCode {
    fn from(done: Done) -> ExitCode {
        ExitCode::from(done.0)
    }
}

/// The message that the user reads, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

pub(crate) type Outcome = Result<Done, Failure>;

impl Failure {
    /// Exit code 1: something that should have worked did not.
    pub(crate) fn fault(message: impl Display) -> Self {
        Failure { code: 1, message: message.to_string() }
    }
    /// Exit code 2: the command line or an input file is invalid.
    pub(crate) fn usage(message: impl Display) -> Self {
        Failure { code: 2, message: message.to_string() }
    }
    /// Exit code 3: a refusal. Nothing was changed.
    pub(crate) fn refused(message: impl Display) -> Self {
        Failure { code: 3, message: message.to_string() }
    }
    /// Exit code 4: no daemon answers, or this host lacks what the command needs.
    pub(crate) fn unavailable(message: impl Display) -> Self {
        Failure { code: 4, message: message.to_string() }
    }
    /// `code` is 126 if the program cannot be executed, 127 if it cannot be found.
    pub(crate) fn program(code: u8, message: impl Display) -> Self {
        Failure { code, message: message.to_string() }
    }

    /// Exit code 3: a refusal with its next step.
    pub(crate) fn problem(problem: &Problem) -> Self {
        Failure::refused(Advice(problem))
    }

    /// Prints the message to stderr and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        output::note(format_args!("qfabric: {}", self.message));
        ExitCode::from(self.code)
    }

    /// Puts `place` in front of the message.
    pub(crate) fn context(mut self, place: impl Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }
}

/// The message alone, for a failure that does not end the command.
impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// A problem as a terminal shows it: the message, then the next step on a line of its own. No other code lays out a
/// problem.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advice<'a>(pub &'a Problem);

impl Display for Advice<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Problem { message, next_step, .. } = self.0;
        match (message.as_str(), next_step.as_str()) {
            ("", _) | (_, "") => write!(f, "{}", self.0),
            (message, next_step) => write!(f, "{message}\ntry: {next_step}"),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::fault(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_holder_of_the_rest_and_the_next_step() {
        let problem = Problem {
            code: "over_committed".into(),
            message: "asked for 0.5 CPU, 0.1 CPU is free; held by mpv (3): 0.9 CPU".into(),
            next_step: "ask for less".into(),
            ..Problem::default()
        };
        let failure = Failure::problem(&problem);
        assert_eq!(failure.code, 3);
        assert_eq!(failure.message, format!("{}\ntry: ask for less", problem.message));
        assert_eq!(Failure::usage(Advice(&problem)), Failure { code: 2, ..failure });
        let bare = Problem { code: "gone".into(), ..Problem::default() };
        assert_eq!(Failure::problem(&bare).message, "refused: gone");
    }
}
