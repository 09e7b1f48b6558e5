//! Generates eBPF from a checked program: functions and statements.
//!
//! Departure from the usual design of a compiler: every variable lives in the frame, and no value stays in a
//! register across a join or the head of a loop. The kernel's verifier forgets the values of numbers in such
//! memory. So states are equal where paths join, and verification takes about linear time.

use super::arith::Need;
use super::tally::Tally;
use super::{Alu, Asm, Jmp, Label, Layout, Reg, Size, facts, walk};
use crate::engine::Limits;
use crate::hir::{Builtin, Expr, ExprKind, Fault, FaultKind, Function, Program, Stmt};
use qfabric_types::format::Scalar;

/// Register with the address of the call's private memory.
pub(super) const FRAME: Reg = Reg::R6;
/// Register with the address of the persistent variables.
pub(super) const STATICS: Reg = Reg::R7;
/// Register with the address of the attributes, 64-bit words.
pub(super) const ATTRIBUTES: Reg = Reg::R8;

/// The exits of the generated code.
#[derive(Clone, Copy, Debug)]
pub struct Exits {
    /// r0 holds the verdict.
    pub done: Label,
    /// r0 holds [`Fault::code`].
    pub fault: Label,
}

/// The operations that differ between the kernel and user space. None of them may change r6–r8. [`super::measure`]
/// counts 256 instructions for an emission, 12 for any other builtin, 4 for an attribute and 2 for a loop; no host
/// may emit more.
pub trait Host {
    /// Puts the result into r0, extended to 64 bits according to its type's sign; may change r1–r5. For
    /// [`Builtin::Emit`] the limit has already been checked: the host only delivers `layout.output_bytes` bytes at
    /// r6 + `layout.output`, and its result is ignored.
    fn builtin(&mut self, asm: &mut Asm, what: Builtin, layout: &Layout);
    /// Stores the register to the word at r8 + `offset`. Must change no register.
    fn set_attribute(&mut self, asm: &mut Asm, offset: i16, value: Reg) {
        asm.store(Size::D, Reg::R8, offset, value);
    }
    /// Adds r1 to the word at r8 + `offset` in one atomic step. Puts the new value into r0; may change r1–r5.
    fn add_attribute(&mut self, asm: &mut Asm, offset: i16);
    /// Called at the head of each loop iteration: the kernel needs a `may_goto`. May change r0–r5.
    fn loop_guard(&mut self, asm: &mut Asm, exhausted: Label);
}

/// Appends the code of the program. Registers at its start: r6 the frame ([`Layout`]) with the event in it, r7 the
/// statics, r8 the attributes (64-bit words). r9 and the stack belong to the host and stay unchanged. r0–r5 are
/// overwritten. Control leaves through one of the exits.
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

pub(super) struct Generator<'a> {
    pub asm: &'a mut Asm,
    pub program: &'a Program,
    pub layout: &'a Layout,
    pub host: &'a mut dyn Host,
    /// Indexed by function: [`facts::flows_of_functions`].
    pub flows: &'a [u64],
    /// Number of temporaries in use.
    pub waiting: u32,
    /// Set while measuring: called functions are counted instead of inlined.
    pub tally: Option<Tally<'a>>,
    /// The current function, and the target of its `return`.
    pub function: usize,
    pub leave: Leave,
    /// Loops around the current statement, within its function.
    pub turns: Vec<Turn>,
    /// Fault codes, each with the label of its report.
    faults: Vec<(u32, Label)>,
}

/// The targets of `break` and `continue` of a loop.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    end: Label,
    next: Label,
}

/// The target of a function's `return`.
#[derive(Clone, Copy)]
pub(super) struct Leave {
    pub to: Label,
    /// The required form of the result; `None` if the result is unused.
    pub need: Option<Need>,
    /// The temporary that receives the result; `None` if the result is returned in r0.
    pub slot: Option<i16>,
}

impl<'a> Generator<'a> {
    pub(super) fn new(
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

    /// Sets fuel and emissions to their limits and the output to zero.
    pub(super) fn begin(&mut self, limits: Limits) {
        self.set_word(Layout::FUEL, limits.fuel);
        self.set_word(Layout::EMISSIONS, limits.emissions);
        if self.program.output.is_some() {
            self.clear_bytes(FRAME, self.layout.output, self.layout.output_bytes);
        }
    }

    fn set_word(&mut self, offset: u32, value: u32) {
        self.asm.store_imm(Size::W, FRAME, offset as i16, value as i32);
    }

    /// Generates a function's body and the result for reaching its end.
    pub(super) fn function(&mut self, function: &Function, fallen_off: i64) {
        self.block(&function.body);
        self.give(&Expr { kind: ExprKind::Const(fallen_off), ty: Scalar::I64 });
    }

    /// Returns the label of a fault. [`Generator::faults_to`] generates its report at the end of the code.
    pub(super) fn fault(&mut self, kind: FaultKind, line: u32) -> Label {
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

    /// Generates the reports of all faults, behind the code of the normal case.
    pub(super) fn faults_to(&mut self, exit: Label) {
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
        }
    }

    fn turn(&self) -> Turn {
        *self.turns.last().expect("the checker allows break and continue only in loops")
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

    /// `return`: a condition in the returned value becomes a branch, and each branch returns separately.
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

    /// Puts the result where the caller expects it.
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

/// Whether the condition is short enough to be generated twice: before the loop and at its end.
fn is_short(condition: &Expr) -> bool {
    fn nodes(expr: &Expr) -> usize {
        1 + walk::operands(expr).into_iter().map(nodes).sum::<usize>()
    }
    !walk::has_call(condition) && nodes(condition) <= 8
}

fn is_truth(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Compare(..) | ExprKind::And(..) | ExprKind::Or(..))
}
