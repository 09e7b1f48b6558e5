//! From a checked program to eBPF: the way through functions and statements.
//!
//! Departure from what a compiler would do: every variable lives in the frame, and nothing is kept in a register
//! across a join or the head of a loop. The kernel's verifier forgets what it knows of numbers in such memory, so
//! that states are equal where paths meet, and whatever is generated is verified in about linear time.

use super::arith::Need;
use super::tally::Tally;
use super::{Alu, Asm, Jmp, Label, Layout, Reg, Size, facts, walk};
use crate::engine::Limits;
use crate::hir::{Builtin, Expr, ExprKind, Fault, FaultKind, Function, Program, Stmt};
use qfabric_types::format::Scalar;

/// The private memory of the call.
pub(super) const FRAME: Reg = Reg::R6;
/// What persists.
pub(super) const STATICS: Reg = Reg::R7;
/// 64-bit words.
pub(super) const ATTRIBUTES: Reg = Reg::R8;

/// Where generated code ends.
#[derive(Clone, Copy, Debug)]
pub struct Exits {
    /// r0 is the verdict.
    pub done: Label,
    /// r0 is [`Fault::code`].
    pub fault: Label,
}

/// What the kernel and user space do differently. None of it may change r6–r8. [`super::measure`] counts 256
/// instructions for an emission, 12 for another builtin, 4 for an attribute and 2 for a loop: no host takes more.
pub trait Host {
    /// Result in r0, extended to 64 bits by its type's sign; may clobber r1–r5. For [`Builtin::Emit`] the limit has
    /// been checked: only the delivery of `layout.output_bytes` bytes at r6 + `layout.output` is to be done, and no
    /// result is looked at.
    fn builtin(&mut self, asm: &mut Asm, what: Builtin, layout: &Layout);
    /// Adds r1 to the word at r8 + `offset` in one step; the new value in r0; may clobber r1–r5.
    fn add_attribute(&mut self, asm: &mut Asm, offset: i16);
    /// At the head of every turn of a loop: the kernel wants a `may_goto`. May clobber r0–r5.
    fn loop_guard(&mut self, asm: &mut Asm, exhausted: Label);
}

/// Appends the code of the program. Registers at its entry: r6 the frame ([`Layout`]), with the event in it; r7
/// the statics; r8 the attributes, 64-bit words; r9 and the stack are the host's and are left alone. r0–r5 are
/// lost. It leaves by one of the exits.
pub fn generate(asm: &mut Asm, program: &Program, host: &mut dyn Host, limits: Limits, exits: Exits) {
    let layout = Layout::of(program);
    let flows = facts::flows_of_functions(program);
    let entry = program.functions.len() - 1;
    let leave = Leave { to: exits.done, need: Some(Need::Full), slot: None };
    let mut generator = Generator::new(asm, program, &layout, &flows, host, (entry, leave));
    generator.begin(limits);
    generator.function(&program.functions[entry], 1);
    generator.asm.jump(exits.done);
    generator.faults_to(exits.fault);
}

/// State of generation.
pub(super) struct Generator<'a> {
    pub asm: &'a mut Asm,
    pub program: &'a Program,
    pub layout: &'a Layout,
    pub host: &'a mut dyn Host,
    /// By function: [`facts::flows_of_functions`].
    pub flows: &'a [u64],
    /// Temporaries in use.
    pub waiting: u32,
    /// When measuring: bodies of called functions are counted, not made.
    pub tally: Option<Tally<'a>>,
    /// The one at hand, and where its `return` goes.
    pub function: usize,
    pub leave: Leave,
    /// Loops around the statement at hand, within its function.
    pub turns: Vec<Turn>,
    /// Codes of faults and where each is reported.
    faults: Vec<(u32, Label)>,
}

/// Where `break` and `continue` of a loop go.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    end: Label,
    next: Label,
}

/// Where a function's `return` goes.
#[derive(Clone, Copy)]
pub(super) struct Leave {
    pub to: Label,
    /// None: nobody looks at the result.
    pub need: Option<Need>,
    /// The temporary in which the result waits; none: it comes in r0.
    pub slot: Option<i16>,
}

impl<'a> Generator<'a> {
    pub fn new(
        asm: &'a mut Asm,
        program: &'a Program,
        layout: &'a Layout,
        flows: &'a [u64],
        host: &'a mut dyn Host,
        (function, leave): (usize, Leave),
    ) -> Self {
        let (turns, faults) = (Vec::new(), Vec::new());
        Self { asm, program, layout, host, flows, waiting: 0, tally: None, function, leave, turns, faults }
    }

    /// Fuel and emissions are full, the output is zero.
    pub fn begin(&mut self, limits: Limits) {
        self.set_word(Layout::FUEL, limits.fuel);
        self.set_word(Layout::EMISSIONS, limits.emissions);
        if self.program.output.is_some() {
            self.clear_bytes(FRAME, self.layout.output, self.layout.output_bytes);
        }
    }

    fn set_word(&mut self, offset: u32, value: u32) {
        self.asm.store_imm(Size::W, FRAME, offset as i16, value as i32);
    }

    /// A function's body, and what falling off its end gives.
    pub fn function(&mut self, function: &Function, fallen_off: i64) {
        self.block(&function.body);
        self.give(&Expr { kind: ExprKind::Const(fallen_off), ty: Scalar::I64 });
    }

    /// The label of a fault, reported at the end of the code.
    pub fn fault(&mut self, kind: FaultKind, line: u32) -> Label {
        let code = Fault { kind, line }.code();
        match self.faults.iter().find(|(known, _)| *known == code) {
            Some(&(_, label)) => label,
            None => {
                let label = self.asm.label();
                self.faults.push((code, label));
                label
            }
        }
    }

    /// Reports all faults: out of the way of what usually happens.
    pub fn faults_to(&mut self, exit: Label) {
        for (code, label) in std::mem::take(&mut self.faults) {
            self.asm.bind(label);
            self.asm.alu32(Alu::Mov, Reg::R0, code as i32);
            self.asm.jump(exit);
        }
    }

    fn block(&mut self, body: &[Stmt]) {
        body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        if !self.asm.is_reachable() {
            return;
        }
        match stmt {
            Stmt::Expr(expr) => self.effect(expr),
            Stmt::If(condition, yes, no) => self.if_else(condition, yes, no),
            Stmt::Loop { condition, tests_after, step, body, number, line } => {
                let (condition, step) = (condition.as_ref(), step.as_ref());
                let parts = Loop { condition, step, body, number: *number, line: *line };
                self.repeat(parts, *tests_after);
            }
            Stmt::Break => self.asm.jump(self.turn().end),
            Stmt::Continue => self.asm.jump(self.turn().next),
            Stmt::Return(Some(value)) => self.leave_with(value),
            Stmt::Return(None) => self.leave_with(&Expr { kind: ExprKind::Const(0), ty: Scalar::I64 }),
            Stmt::Clear { place, bytes } => self.clear(place, *bytes),
            Stmt::Copy { to, from, bytes } => self.copy(to, from, *bytes),
        }
    }

    fn turn(&self) -> Turn {
        *self.turns.last().expect("the checker lets break and continue stand in loops only")
    }

    fn if_else(&mut self, condition: &Expr, yes: &[Stmt], no: &[Stmt]) {
        let (otherwise, end) = (self.asm.label(), self.asm.label());
        self.branch(condition, false, otherwise);
        self.block(yes);
        if !no.is_empty() {
            self.asm.jump(end);
        }
        self.asm.bind(otherwise);
        self.block(no);
        self.asm.bind(end);
    }

    /// ```text
    /// short test ─> head: fuel, body ─> next: step ─> test ──true──> head    else end
    /// long          head: test ─> fuel, body ─> next: step ─> head           else end
    /// ```
    fn repeat(&mut self, parts: Loop, tests_after: bool) {
        let (head, next, end) = (self.asm.label(), self.asm.label(), self.asm.label());
        let (before, after) = match parts.condition {
            Some(_) if tests_after => (None, parts.condition),
            Some(condition) if is_short(condition) => {
                self.branch(condition, false, end);
                (None, Some(condition))
            }
            condition => (condition, None),
        };
        self.asm.bind(head);
        let mut open = self.tally.as_mut().map(|tally| tally.begin(self.asm.len()));
        before.into_iter().for_each(|condition| self.branch(condition, false, end));
        if let (Some(tally), Some(open)) = (&self.tally, &mut open) {
            tally.tested(open, self.asm.len());
        }
        self.take_fuel(self.program.loops[parts.number as usize].cost, parts.line);
        self.turns.push(Turn { end, next });
        self.block(parts.body);
        self.turns.pop();
        self.asm.bind(next);
        parts.step.into_iter().for_each(|step| self.effect(step));
        match after {
            Some(condition) => self.branch(condition, true, head),
            None => self.asm.jump(head),
        }
        if let (Some(tally), Some(open)) = (&mut self.tally, open) {
            tally.end(open, parts.number, self.asm.len());
        }
        self.asm.bind(end);
    }

    fn take_fuel(&mut self, cost: u32, line: u32) {
        let empty = self.fault(FaultKind::Fuel, line);
        if self.asm.is_reachable() {
            self.host.loop_guard(self.asm, empty);
        }
        self.asm.load(Size::W, Reg::R0, FRAME, Layout::FUEL as i16);
        self.asm.jump_if(Jmp::Lt, Reg::R0, cost as i32, empty);
        self.asm.alu64(Alu::Sub, Reg::R0, cost as i32);
        self.asm.store(Size::W, FRAME, Layout::FUEL as i16, Reg::R0);
    }

    /// `return`: conditions of what is returned become branches, each with its own way out.
    fn leave_with(&mut self, value: &Expr) {
        match &value.kind {
            ExprKind::Select(condition, yes, no) => {
                let otherwise = self.asm.label();
                self.branch(condition, false, otherwise);
                self.leave_with(yes);
                self.asm.bind(otherwise);
                self.leave_with(no);
            }
            ExprKind::Compare(..) | ExprKind::And(..) | ExprKind::Or(..) => self.leave_with_truth(value),
            ExprKind::Cast(inner) if is_truth(inner) => self.leave_with_truth(inner),
            _ => self.give_and_go(value),
        }
    }

    fn leave_with_truth(&mut self, value: &Expr) {
        let otherwise = self.asm.label();
        self.branch(value, false, otherwise);
        self.give_and_go(&Expr { kind: ExprKind::Const(1), ty: Scalar::I64 });
        self.asm.bind(otherwise);
        self.give_and_go(&Expr { kind: ExprKind::Const(0), ty: Scalar::I64 });
    }

    fn give_and_go(&mut self, value: &Expr) {
        self.give(value);
        self.asm.jump(self.leave.to);
    }

    /// The result, where the function's caller looks for it.
    fn give(&mut self, value: &Expr) {
        match self.leave.need {
            Some(need) => self.value(value, 0, need),
            None => return self.effect(value),
        }
        if let Some(slot) = self.leave.slot {
            self.asm.store(Size::D, FRAME, slot, Reg::R0);
        }
    }
}

struct Loop<'a> {
    condition: Option<&'a Expr>,
    step: Option<&'a Expr>,
    body: &'a [Stmt],
    number: u32,
    line: u32,
}

/// Short enough to stand twice: before a loop and at its end.
fn is_short(condition: &Expr) -> bool {
    fn nodes(expr: &Expr) -> usize {
        1 + walk::operands(expr).into_iter().map(nodes).sum::<usize>()
    }
    !walk::has_call(condition) && nodes(condition) <= 8
}

fn is_truth(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Compare(..) | ExprKind::And(..) | ExprKind::Or(..))
}
