//! From a text to what is made of it.

use qfabric_types::format::Format;

use crate::diagnostics::{Diagnostic, Diagnostics, Sink, Span};
use crate::{Environment, Program};

fn nothing_yet(text: &str) -> Diagnostics {
    let mut sink = Sink::default();
    sink.push(Diagnostic::new(Span::new(0, 0), "nothing is compiled yet", ""));
    sink.finish(text)
}

/// Compiles a text for an environment.
pub fn compile(text: &str, _env: &Environment) -> Result<Program, Diagnostics> {
    Err(nothing_yet(text))
}

/// Struct declarations alone.
pub fn parse_formats(text: &str) -> Result<Vec<Format>, Diagnostics> {
    Err(nothing_yet(text))
}

/// A format as a C declaration.
pub fn format_text(format: &Format) -> String {
    format.name.clone()
}

/// The text, laid out.
pub fn pretty(text: &str) -> Result<String, Diagnostics> {
    Err(nothing_yet(text))
}
