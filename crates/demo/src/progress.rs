//! Reports the progress of the demo to the user.

use std::fmt::Display;
use std::io::Write;

use indicatif::{ProgressBar, ProgressStyle};

/// A receiver of progress reports.
pub trait Progress {
    /// Begins a stage, which ends when [`Progress::advance`] reaches `length`.
    fn stage(&mut self, name: &str, length: u64);
    /// Sets the position in the current stage.
    fn advance(&mut self, position: u64);
    /// Prints a line that stays visible.
    fn note(&mut self, line: &str);
}

/// Discards all reports.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&mut self, _: &str, _: u64) {}
    fn advance(&mut self, _: u64) {}
    fn note(&mut self, _: &str) {}
}

/// Shows a bar on standard error, or plain lines if standard error is not a terminal.
#[derive(Debug)]
pub struct Terminal {
    bar: ProgressBar,
    is_terminal: bool,
}

impl Default for Terminal {
    fn default() -> Self {
        let style = ProgressStyle::with_template("{bar:30.cyan/blue} {percent:>3}% {msg}")
            .expect("the constant template is valid")
            .progress_chars("━╸─");
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        Terminal { bar: ProgressBar::new(0).with_style(style), is_terminal }
    }
}

impl Progress for Terminal {
    fn stage(&mut self, name: &str, length: u64) {
        self.bar.set_length(length);
        self.bar.set_position(0);
        self.bar.set_message(name.to_owned());
        if !self.is_terminal {
            line(name);
        }
    }
    fn advance(&mut self, position: u64) {
        self.bar.set_position(position);
    }
    fn note(&mut self, text: &str) {
        if self.is_terminal { self.bar.println(text) } else { line(text) }
    }
}

/// Prints a line to stderr. Unlike `eprintln!` it does not panic if the terminal is closed: the command goes on, puts
/// everything back at its end, and its exit code reports the result.
pub fn line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
