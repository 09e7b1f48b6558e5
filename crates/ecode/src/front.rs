//! The entry points of the front end: compile a program, parse formats.

use qfabric_types::format::Format;

use crate::ast::{Stmt, StmtKind, Text, TypeKind};
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

/// Whether a text declares its own `struct input`. False also for a text with syntax errors, which [`compile`] reports.
pub fn declares_input(text: &str) -> bool {
    let is_input = |statement: &Stmt| match &statement.kind {
        StmtKind::Declare(declaration) => match &declaration.ty.kind {
            TypeKind::Struct { tag: Some(tag), members: Some(_) } => tag.name == "input",
            _ => false,
        },
        _ => false,
    };
    parsed(text).is_ok_and(|text| text.statements.iter().any(is_input))
}

/// Parses the text. A text with syntax errors is not checked, because further errors would be consequences.
fn parsed(text: &str) -> Result<Text, Diagnostics> {
    let mut sink = Sink::default();
    let tree = parser::parse(text, &mut sink);
    if sink.is_empty() { Ok(tree) } else { Err(sink.finish(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_declares_its_input_with_any_blanks_but_not_in_a_comment_or_a_block() {
        for declares in
            ["struct input { int a; };", "struct  input\n{ int a; }; return 1;", "struct /* the */ input { int a; };"]
        {
            assert!(declares_input(declares), "{declares}");
        }
        for not in [
            "return 1;",
            "// struct input { int a; };\nreturn 1;",
            "/* no struct input here */ return input.a;",
            "struct inputs { int a; }; return 1;",
            "struct output { int a; }; return 1;",
            "if (1) { struct input { int a; }; } return 1;",
            "struct input { int a; }; return (;",
        ] {
            assert!(!declares_input(not), "{not}");
        }
    }
}
