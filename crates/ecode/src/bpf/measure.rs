//! How large a program's code would be, without making it: every function is generated once, with its calls
//! counted instead of inlined, so that a bomb of calls costs no more to refuse than its text is long.

use super::arith::Need;
use super::generate::{Generator, Leave};
use super::{Asm, Host, Label, Layout, facts, walk};
use crate::engine::Limits;
use crate::hir::{Builtin, Expr, ExprKind, FunctionId, Program, Stmt};

/// What running and generating a program takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Instructions, its functions inlined: never fewer than [`super::generate`] makes. Saturates.
    pub instructions: u64,
    /// Bytes of a call's frame.
    pub frame: u32,
    /// Nesting of statements and expressions, along the deepest chain of calls.
    pub depth: u64,
}

/// Instructions that hosts may take, each time, for what they are asked.
const BUILTIN: u64 = 12;
const EMIT: u64 = 256;
const ADD_ATTRIBUTE: u64 = 4;
const LOOP_GUARD: u64 = 2;

/// Measures a program.
pub fn measure(program: &Program) -> Measure {
    let layout = Layout::of(program);
    let depth = walk::by_function(program, deepest).last().copied().unwrap_or(0);
    Measure { instructions: cost(program, &layout), frame: layout.size, depth }
}

fn cost(program: &Program, layout: &Layout) -> u64 {
    let flows = facts::flows_of_functions(program);
    let mut sizes = Vec::new();
    for function in 0..program.functions.len() {
        let size = size_of(function, (program, layout), &flows, &sizes);
        sizes.push(size);
    }
    sizes.last().copied().unwrap_or(0)
}

/// The size of one function, from those of the ones before it. The last one begins and ends the program.
fn size_of(function: usize, (program, layout): (&Program, &Layout), flows: &[u64], sizes: &[u64]) -> u64 {
    let (mut asm, mut host) = (Asm::new(), Counter(0));
    let leave = Leave { to: asm.label(), need: Some(Need::Full), slot: Some(0) };
    let mut generator = Generator::new(&mut asm, program, layout, flows, &mut host, (function, leave));
    generator.sizes = Some((sizes, 0));
    if function + 1 == program.functions.len() {
        generator.begin(Limits::default());
    }
    generator.function(&program.functions[function], 1);
    generator.asm.jump(leave.to);
    generator.faults_to(leave.to);
    let called = generator.sizes.map_or(0, |(_, called)| called);
    // One more: a function that ends by a fault saves the jump to it here, and not where it is inlined.
    (asm.len() as u64 + 1).saturating_add(called).saturating_add(host.0)
}

/// Counts what a host would add.
struct Counter(u64);

impl Host for Counter {
    fn builtin(&mut self, _: &mut Asm, what: Builtin, _: &Layout) {
        self.0 += if what == Builtin::Emit { EMIT } else { BUILTIN };
    }

    fn add_attribute(&mut self, _: &mut Asm, _: i16) {
        self.0 += ADD_ATTRIBUTE;
    }

    fn loop_guard(&mut self, asm: &mut Asm, exhausted: Label) {
        asm.may_goto(exhausted);
        self.0 += LOOP_GUARD - 1;
    }
}

/// The deepest nesting in a function's body, from what those before it came to.
fn deepest(body: &[Stmt], known: &[u64]) -> u64 {
    let of_stmt = |stmt| {
        let (exprs, blocks) = walk::parts(stmt);
        let exprs = exprs.into_iter().map(|expr| deepest_in(expr, known));
        let blocks = blocks.into_iter().map(|block| deepest(block, known));
        exprs.chain(blocks).max().unwrap_or(0)
    };
    1 + body.iter().map(of_stmt).max().unwrap_or(0)
}

fn deepest_in(expr: &Expr, known: &[u64]) -> u64 {
    let called = match expr.kind {
        ExprKind::Call(FunctionId(function), _) => known[function as usize],
        _ => 0,
    };
    let operands = walk::operands(expr).into_iter().map(|operand| deepest_in(operand, known));
    1 + operands.chain([called]).max().unwrap_or(0)
}
