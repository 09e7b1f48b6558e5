//! Measures the size and the longest run of a program without generating all of its code. Each function is
//! generated once, and calls are counted instead of inlined. So refusing a program whose inlined calls grow
//! exponentially takes time linear in the length of its text.

use std::cell::Cell;

use super::arith::Need;
use super::generate::{Generator, Leave};
use super::tally::{Size, Tally};
use super::{Asm, Host, Label, Layout, facts, walk};
use crate::engine::Limits;
use crate::hir::{Builtin, Expr, ExprKind, FunctionId, Program, Stmt};

/// The size of a program and its longest run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Instructions with all functions inlined: never fewer than [`super::generate`] emits. Saturates.
    pub instructions: u64,
    /// Largest number of instructions of all loop iterations in one call, in the unit in which fuel is charged;
    /// `u64::MAX` if the text does not bound them.
    pub turns: u64,
    /// Bytes of a call's frame.
    pub frame: u32,
    /// Nesting of statements and expressions along the deepest chain of calls.
    pub depth: u64,
}

impl Measure {
    /// Largest number of instructions that one call executes with `fuel`. A call of a kernel function counts as the
    /// instructions that prepare it.
    pub fn worst_case(&self, fuel: u32) -> u64 {
        self.instructions.saturating_add(self.turns.min(u64::from(fuel)))
    }
}

/// Instructions that a host may emit for each operation, see [`Host`].
const BUILTIN: u64 = 12;
const EMIT: u64 = 256;
const ADD_ATTRIBUTE: u64 = 4;
const LOOP_GUARD: u64 = 2;

pub fn measure(program: &Program) -> Measure {
    let layout = Layout::of(program);
    let depth = walk::by_function(program, deepest).last().copied().unwrap_or(0);
    let (size, _) = sizes(program, &layout);
    Measure { instructions: size.code, turns: size.turns, frame: layout.size, depth }
}

/// The cost of one iteration of each loop, see [`crate::hir::Repetition::cost`].
pub(crate) fn costs(program: &Program) -> Vec<u32> {
    sizes(program, &Layout::of(program)).1
}

/// The size of the last function, which is the whole program, and the costs of all loops.
fn sizes(program: &Program, layout: &Layout) -> (Size, Vec<u32>) {
    let flows = facts::flows_of_functions(program);
    let turns: Vec<u64> = program.loops.iter().map(|known| known.turns).collect();
    // A loop in code that is never generated never runs. Its cost is 1, so that no iteration is free.
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

/// The size of one function, from the sizes of the functions before it. The last function includes the start and
/// the end of the program.
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
    // Plus one: a function that ends with a fault needs no jump to the report here, but does need it where it is
    // inlined.
    let made = generator.asm.len() + 1;
    generator.tally.map(|tally| tally.size(made)).unwrap_or_default()
}

/// A host that counts instructions instead of emitting them.
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

/// The deepest nesting in a function's body, from the results of the functions before it.
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
