//! What every engine can run: bounds of the whole program, measured before any code is made of it.

use super::{Checked, Checker, MAX_FRAME};
use crate::ast::{Stmt, Text};
use crate::bpf::measure;
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::Program;

/// Instructions of the generated code, its functions put in where they are called: a jump reaches 32,767 of them, and
/// what the host adds needs room too.
const MAX_INSTRUCTIONS: u64 = 30_000;
/// Nesting of statements and expressions along the deepest chain of calls: engines recur that deep.
const MAX_DEPTH: u64 = 512;
/// With more functions than these, the one that is too large is not looked for.
const MAX_SEARCHED: usize = 64;

impl Checker<'_> {
    /// `heads` are the places of the program's functions in the text.
    pub(super) fn check_program(&mut self, program: &Program, heads: &[Span]) -> Checked<()> {
        let size = measure(program);
        let whole = heads.last().copied().unwrap_or_default();
        if size.depth > MAX_DEPTH {
            let message =
                format!("statements and calls are nested {} levels deep, the limit is {MAX_DEPTH}", size.depth);
            let error = Diagnostic::new(whole, message, "with everything that is called from here");
            return self
                .fail(error.help("give parts of long expressions names of their own, and nest calls less deep"));
        }
        if size.instructions > MAX_INSTRUCTIONS {
            let (place, instructions) = self.first_too_large(program, heads).unwrap_or((whole, size.instructions));
            let message =
                format!("this would be {} instructions, the limit is {MAX_INSTRUCTIONS}", readable(instructions));
            let error = Diagnostic::new(place, message, "with what it calls put in, once for each call");
            return self.fail(error.help("call large functions at fewer places, such as once in a loop"));
        }
        if size.frame > MAX_FRAME {
            let message = format!("a call needs {} bytes of memory, the limit is {MAX_FRAME}", size.frame);
            let error = Diagnostic::new(whole, message, "input, output and all variables together");
            return self.fail(error.help("make arrays smaller, or `static`: those have 32768 bytes of their own"));
        }
        Ok(())
    }

    /// The first function that is too large by itself, without those that call it.
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

    /// Where the statements of a text begin.
    pub(super) fn head_of_statements(&self, tree: &Text, does_something: fn(&Stmt) -> bool) -> Span {
        let first = tree.statements.iter().find(|statement| does_something(statement));
        let Some(first) = first else { return Span::default() };
        let line = first.span.of(self.text).lines().next().unwrap_or_default().trim_end().len();
        Span::new(first.span.start as usize, first.span.start as usize + line)
    }
}

/// Beyond what anybody reads, only that it is much.
fn readable(instructions: u64) -> String {
    if instructions < 1_000_000_000 { instructions.to_string() } else { "more than 1000000000".to_owned() }
}
