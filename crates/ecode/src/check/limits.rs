//! Checks the limits of the whole program before any code is generated, so that every engine can run the program.

use super::{Checked, Findings, MAX_FRAME};
use crate::ast::{Stmt, Text};
use crate::bpf::measure;
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::Program;

/// Largest number of instructions of the generated code, with functions inlined at their calls. A jump reaches 32,767
/// instructions, and the instructions that the host adds need space too.
const MAX_INSTRUCTIONS: u64 = 30_000;
/// Deepest nesting of statements and expressions along the longest chain of calls. Engines recur to this depth.
const MAX_DEPTH: u64 = 512;
/// If a program has more functions, the check does not search for the function that is too large.
const MAX_SEARCHED: usize = 64;

impl Findings<'_> {
    /// `heads` are the source ranges of the program's functions.
    pub(super) fn check_program(&mut self, program: &Program, heads: &[Span]) -> Checked<()> {
        let size = measure(program);
        let whole = heads.last().copied().unwrap_or_default();
        if size.depth > MAX_DEPTH {
            let message =
                format!("statements and calls are nested {} levels deep, the limit is {MAX_DEPTH}", size.depth);
            let error = Diagnostic::new(whole, message, "counted along the deepest chain of calls");
            return self.fail(error.help("store parts of long expressions in variables, and nest fewer calls"));
        }
        if size.instructions > MAX_INSTRUCTIONS {
            let (place, instructions) = self.first_too_large(program, heads).unwrap_or((whole, size.instructions));
            let message = format!(
                "the generated code would have {} instructions, the limit is {MAX_INSTRUCTIONS}",
                readable(instructions)
            );
            let error = Diagnostic::new(place, message, "each call adds the instructions of the called function");
            return self.fail(error.help("call large functions in fewer places, such as once inside a loop"));
        }
        if size.frame > MAX_FRAME {
            let message = format!("a call needs {} bytes of memory, the limit is {MAX_FRAME}", size.frame);
            let error = Diagnostic::new(whole, message, "input, output and all local variables together");
            return self.fail(error.help("make arrays smaller or `static`: static variables have another 32768 bytes"));
        }
        Ok(())
    }

    /// Returns the first function that exceeds the limit without the code of its callers.
    fn first_too_large(&self, program: &Program, heads: &[Span]) -> Option<(Span, u64)> {
        if heads.len() > MAX_SEARCHED {
            return None;
        }
        let sizes = (1..=heads.len()).map(|functions| {
            let mut part = program.clone();
            part.functions.truncate(functions);
            measure(&part).instructions
        });
        heads.iter().copied().zip(sizes).find(|(_, instructions)| *instructions > MAX_INSTRUCTIONS)
    }

    /// The source range of the first line of the text's statements.
    pub(super) fn head_of_statements(&self, tree: &Text, does_something: fn(&Stmt) -> bool) -> Span {
        let first = tree.statements.iter().find(|statement| does_something(statement));
        let Some(first) = first else { return Span::default() };
        let line = first.span.of(self.text).lines().next().unwrap_or_default().trim_end().len();
        Span::new(first.span.start as usize, first.span.start as usize + line)
    }
}

/// The number for a message. Above 10⁹ only the fact that it is larger matters.
fn readable(instructions: u64) -> String {
    if instructions < 1_000_000_000 { instructions.to_string() } else { "more than 1000000000".to_owned() }
}
