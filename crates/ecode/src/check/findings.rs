//! The text with the errors and warnings found in it.
//!
//! A check that only looks and reports belongs to [`Findings`]. A check that also needs names, types or the frame
//! belongs to the checker.

use super::Checked;
use crate::diagnostics::{Diagnostic, Sink, Span};
use crate::parser::Failed;

pub(super) struct Findings<'a> {
    pub text: &'a str,
    /// Byte offset at which each line starts.
    lines: Vec<u32>,
    pub errors: Sink,
    pub warnings: Sink,
}

impl<'a> Findings<'a> {
    pub(super) fn new(text: &'a str) -> Findings<'a> {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(newlines.map(|(at, _)| at as u32 + 1)).collect();
        Findings { text, lines, errors: Sink::default(), warnings: Sink::default() }
    }

    pub(super) fn report(&mut self, error: Diagnostic) -> Failed {
        self.errors.push(error);
        Failed
    }

    pub(super) fn fail<T>(&mut self, error: Diagnostic) -> Checked<T> {
        Err(self.report(error))
    }

    pub(super) fn line(&self, span: Span) -> u32 {
        self.lines.partition_point(|start| *start <= span.start) as u32
    }

    /// The source text of `span` on one line, cut after 40 characters, for a message.
    pub(super) fn quote(&self, span: Span) -> String {
        let written: Vec<&str> = span.of(self.text).split_whitespace().collect();
        let written = written.join(" ");
        match written.char_indices().nth(40) {
            Some((cut, _)) => format!("{}…", &written[..cut]),
            None => written,
        }
    }
}
