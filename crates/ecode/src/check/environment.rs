//! Formats of the environment and of the text. If both define a format, they must agree.

use std::rc::Rc;

use qfabric_types::format::Format;

use super::types::Struct;
use super::{Checked, Checker, Findings};
use crate::ast::Ident;
use crate::diagnostics::{Diagnostic, Span};

/// Longest format that a message shows, in lines.
const SHOWN_LINES: usize = 24;

impl Checker<'_> {
    /// Converts a format of the environment. Reports an error if the format is invalid.
    pub(super) fn env_format(&mut self, what: &str, format: Option<&Format>) -> Option<Rc<Struct>> {
        let format = format?;
        match format.validate() {
            Ok(()) => Some(Rc::new(Struct::of(format))),
            Err(error) => {
                let message = format!("the format of the {what} is invalid: {error}");
                self.findings.report(Diagnostic::new(Span::default(), message, "needed by this text"));
                None
            }
        }
    }

    pub(super) fn declare_input(&mut self, tag: &Ident, structure: Rc<Struct>) -> Checked<()> {
        match &self.env.input {
            Some(given) => self.findings.agree(tag, &structure.format(), given),
            None => {
                self.input = Some(structure);
                Ok(())
            }
        }
    }

    pub(super) fn declare_output(&mut self, tag: &Ident, structure: Rc<Struct>) -> Checked<()> {
        match &self.env.output {
            Some(given) => self.findings.agree(tag, &structure.format(), given),
            None => {
                self.output = Some(structure);
                Ok(())
            }
        }
    }
}

impl Findings<'_> {
    /// The text may omit members; those that it declares must match the format exactly.
    fn agree(&mut self, tag: &Ident, declared: &Format, given: &Format) -> Checked<()> {
        let Some(difference) = declared.first_difference(given) else { return Ok(()) };
        let message = format!("`struct {}` does not match the {}'s format `{}`", tag.name, tag.name, given.name);
        let there = match &difference.there {
            Some(there) => format!("`{}` is {} here, but {there} in the format", difference.member, difference.here),
            None => format!("`{}` is {} here, but the format has no such member", difference.member, difference.here),
        };
        let text = crate::format_text(given);
        let help = match text.lines().count() <= SHOWN_LINES {
            true => format!("remove the declaration, or use the format's declaration:\n{}", text.trim_end()),
            false => "remove the declaration: the format is known without it".to_owned(),
        };
        self.fail(Diagnostic::new(tag.span, message, there).help(help))
    }
}
