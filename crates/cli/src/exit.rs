//! Exit codes, few and documented, and the failures that lead to them.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a fault: something that should have worked did not |
//! | 2 | the command line or an input file makes no sense |
//! | 3 | refused: admission, limits or ownership; nothing was changed |
//! | 4 | no daemon, or no mechanism on this kernel |
//! | 126, 127 | the program cannot be executed, cannot be found (as a shell says it) |
//! | other | `run` and `probe`: the program's own; 128 + n when signal n ended it |

use std::fmt::Display;
use std::process::ExitCode;

use qfabric_types::api::Problem;

/// How a command ends when it does not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done(pub u8);

impl From<Done> for ExitCode {
    fn from(done: Done) -> ExitCode {
        ExitCode::from(done.0)
    }
}

/// Why a command failed, in the words its user gets, and the exit code that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    message: String,
}

/// What every command returns.
pub type Outcome = Result<Done, Failure>;

impl Failure {
    /// Something that should have worked did not.
    pub fn fault(message: impl Display) -> Self {
        Failure { code: 1, message: message.to_string() }
    }
    /// The command line or an input file makes no sense.
    pub fn usage(message: impl Display) -> Self {
        Failure { code: 2, message: message.to_string() }
    }
    /// Nothing was changed.
    pub fn refused(message: impl Display) -> Self {
        Failure { code: 3, message: message.to_string() }
    }
    /// No daemon, or no mechanism.
    pub fn unavailable(message: impl Display) -> Self {
        Failure { code: 4, message: message.to_string() }
    }
    /// The program cannot be executed (126) or found (127).
    pub fn program(code: u8, message: impl Display) -> Self {
        Failure { code, message: message.to_string() }
    }

    /// A refusal of the daemon: what happened and who holds the rest, what to do.
    pub fn problem(problem: &Problem) -> Self {
        let mut message = problem.message.clone();
        if !problem.next_step.is_empty() {
            message += &format!("\ntry: {}", problem.next_step);
        }
        Failure::refused(message)
    }

    /// Prints the message to stderr and gives the exit code.
    pub fn report(self) -> ExitCode {
        eprintln!("qfabric: {}", self.message);
        ExitCode::from(self.code)
    }

    /// The message with more said of where it happened.
    pub fn context(mut self, place: impl Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
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
    fn a_refusal_names_who_holds_the_rest_and_what_to_do() {
        let problem = Problem {
            code: "over_committed".into(),
            message: "asked for 0.5 CPU, 0.1 CPU is free; held by mpv (3): 0.9 CPU".into(),
            next_step: "ask for less".into(),
            ..Problem::default()
        };
        let failure = Failure::problem(&problem);
        assert_eq!(failure.code, 3);
        assert_eq!(failure.message, format!("{}\ntry: ask for less", problem.message));
    }
}
