//! From a text to what is made of it.

use qfabric_types::format::Format;

use crate::ast::Text;
use crate::diagnostics::{Diagnostics, Sink};
use crate::{Environment, Program, check, parser};

/// Compiles a text for an environment. What it accepts, every engine runs.
pub fn compile(text: &str, env: &Environment) -> Result<Program, Diagnostics> {
    check::program(text, &parsed(text)?, env)
}

/// The formats that a text of structure declarations declares, in order: what services and channels are given.
pub fn parse_formats(text: &str) -> Result<Vec<Format>, Diagnostics> {
    check::formats(text, &parsed(text)?)
}

/// What cannot be read is not checked: the errors found then would be consequences of the first ones.
fn parsed(text: &str) -> Result<Text, Diagnostics> {
    let mut sink = Sink::default();
    let tree = parser::parse(text, &mut sink);
    if sink.is_empty() { Ok(tree) } else { Err(sink.finish(text)) }
}
