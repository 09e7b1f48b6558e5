//! The entry points of the front end: compile a program, parse formats.

use qfabric_types::format::Format;

use crate::ast::Text;
use crate::diagnostics::{Diagnostics, Sink, Warnings};
use crate::{Environment, Program, check, parser};

/// Compiles a source text for an environment. Every engine can run an accepted program.
pub fn compile(text: &str, env: &Environment) -> Result<Program, Diagnostics> {
    compile_with_warnings(text, env).map(|(program, _)| program)
}

/// Compiles a source text as [`compile`] does, and also returns the places where a C compiler would warn.
pub fn compile_with_warnings(text: &str, env: &Environment) -> Result<(Program, Warnings), Diagnostics> {
    check::program(text, &parsed(text)?, env)
}

/// Returns the formats that a text of structure declarations declares, in order. Services and channels use them.
pub fn parse_formats(text: &str) -> Result<Vec<Format>, Diagnostics> {
    check::formats(text, &parsed(text)?)
}

/// Parses the text. A text with syntax errors is not checked, because further errors would be consequences.
fn parsed(text: &str) -> Result<Text, Diagnostics> {
    let mut sink = Sink::default();
    let tree = parser::parse(text, &mut sink);
    if sink.is_empty() { Ok(tree) } else { Err(sink.finish(text)) }
}
