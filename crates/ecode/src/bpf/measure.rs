//! How large a program's code would be and how long it may run, without making it: every function is generated once,
//! with its calls counted instead of inlined, so that a bomb of calls costs no more to refuse than its text is long.

use std::cell::Cell;

use super::arith::Need;
use super::generate::{Generator, Leave};
use super::tally::{Size, Tally};
use super::{Asm, Host, Label, Layout, facts, walk};
use crate::engine::Limits;
use crate::hir::{Builtin, Expr, ExprKind, FunctionId, Program, Stmt};

/// What running and generating a program takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Instructions, its functions inlined: never fewer than [`super::generate`] makes. Saturates.
    pub instructions: u64,
    /// Instructions that all turns of its loops take in one call at most, by their costs, which fuel is charged with;
    /// `u64::MAX` where the text does not bound them.
    pub turns: u64,
    /// Bytes of a call's frame.
    pub frame: u32,
    /// Nesting of statements and expressions, along the deepest chain of calls.
    pub depth: u64,
}

impl Measure {
    /// Instructions that one call executes at most, with so much fuel. Kernel functions that it calls count as the
    /// instructions that lead to them.
    pub fn worst_case(&self, fuel: u32) -> u64 {
        self.instructions.saturating_add(self.turns.min(u64::from(fuel)))
    }
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
    let (size, _) = sizes(program, &layout);
    Measure { instructions: size.code, turns: size.turns, frame: layout.size, depth }
}

/// By loop: what a turn costs, see [`crate::hir::Repetition::cost`].
pub(crate) fn costs(program: &Program) -> Vec<u32> {
    sizes(program, &Layout::of(program)).1
}

/// The size of the last function, which is the program, and the costs of all loops.
fn sizes(program: &Program, layout: &Layout) -> (Size, Vec<u32>) {
    let flows = facts::flows_of_functions(program);
    let turns: Vec<u64> = program.loops.iter().map(|known| known.turns).collect();
    // What is generated nowhere is never executed; it does not come for nothing either.
    let mut costs = vec![1; turns.len()];
    let mut known = Vec::new();
    for function in 0..program.functions.len() {
        let host = Cell::new(0);
        let tally = Tally::new(&known, &turns, &mut costs, &host);
        let size = size_of(function, (program, layout), &flows, tally);
        known.push(size);
    }
    (known.last().copied().unwrap_or_default(), costs)
}

/// The size of one function, from those of the ones before it. The last one begins and ends the program.
fn size_of(function: usize, (program, layout): (&Program, &Layout), flows: &[u64], tally: Tally) -> Size {
    let (mut asm, mut host) = (Asm::new(), Counter(tally.host));
    let leave = Leave { to: asm.label(), need: Some(Need::Full), slot: Some(0) };
    let mut generator = Generator::new(&mut asm, program, layout, flows, &mut host, (function, leave));
    generator.tally = Some(tally);
    if function + 1 == program.functions.len() {
        generator.begin(Limits::default());
    }
    generator.function(&program.functions[function], 1);
    generator.asm.jump(leave.to);
    generator.faults_to(leave.to);
    // One more: a function that ends by a fault saves the jump to it here, and not where it is inlined.
    let made = generator.asm.len() + 1;
    generator.tally.map(|tally| tally.size(made)).unwrap_or_default()
}

/// Counts what a host would add.
struct Counter<'a>(&'a Cell<u64>);

impl Counter<'_> {
    fn add(&self, instructions: u64) {
        self.0.set(self.0.get() + instructions);
    }
}

impl Host for Counter<'_> {
    fn builtin(&mut self, _: &mut Asm, what: Builtin, _: &Layout) {
        self.add(if what == Builtin::Emit { EMIT } else { BUILTIN });
    }

    fn add_attribute(&mut self, _: &mut Asm, _: i16) {
        self.add(ADD_ATTRIBUTE);
    }

    fn loop_guard(&mut self, asm: &mut Asm, exhausted: Label) {
        asm.may_goto(exhausted);
        self.add(LOOP_GUARD - 1);
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
