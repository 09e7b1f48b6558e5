//! Generates conditions as jumps instead of numbers.

use super::arith::Need;
use super::generate::Generator;
use super::{Jmp, Label, Operand, Reg, facts};
use crate::hir::{CompareOp, Expr, ExprKind};
use qfabric_types::format::Scalar;

impl Generator<'_> {
    /// Jumps to `to` if the truth of the expression equals `when`. May change all scratch registers.
    pub(super) fn branch(&mut self, condition: &Expr, when: bool, to: Label) {
        match &condition.kind {
            ExprKind::Const(value) if (*value != 0) == when => self.asm.jump(to),
            ExprKind::Const(_) => {}
            ExprKind::And(left, right) => self.branch_both(left, right, false, when, to),
            ExprKind::Or(left, right) => self.branch_both(left, right, true, when, to),
            ExprKind::Compare(op, left, right) => self.branch_compare(*op, left, right, when, to),
            ExprKind::Cast(inner) if condition.ty.bits >= inner.ty.bits => self.branch(inner, when, to),
            ExprKind::Comma(first, last) => {
                self.effect(first);
                self.branch(last, when, to);
            }
            ExprKind::Select(condition, yes, no) => self.branch_select(condition, yes, no, (when, to)),
            _ => self.branch_truth(condition, when, to),
        }
    }

    /// A false left side decides `&&`; a true left side decides `||`.
    fn branch_both(&mut self, left: &Expr, right: &Expr, decides: bool, when: bool, to: Label) {
        if when == decides {
            self.branch(left, decides, to);
            return self.branch(right, when, to);
        }
        let decided = self.asm.label();
        self.branch(left, decides, decided);
        self.branch(right, when, to);
        self.asm.bind(decided);
    }

    fn branch_select(&mut self, condition: &Expr, yes: &Expr, no: &Expr, (when, to): (bool, Label)) {
        let (otherwise, end) = (self.asm.label(), self.asm.label());
        self.branch(condition, false, otherwise);
        self.branch(yes, when, to);
        self.asm.jump(end);
        self.asm.bind(otherwise);
        self.branch(no, when, to);
        self.asm.bind(end);
    }

    fn branch_truth(&mut self, value: &Expr, when: bool, to: Label) {
        let op = if when { Jmp::Ne } else { Jmp::Eq };
        self.value(value, 0, comparable(value.ty));
        self.jump_if(value.ty, op, Operand::Imm(0), to);
    }

    fn branch_compare(&mut self, op: CompareOp, left: &Expr, right: &Expr, when: bool, to: Label) {
        match (&left.kind, &right.kind, op) {
            (ExprKind::Const(_), ExprKind::Const(_), _) => {}
            (ExprKind::Const(_), _, _) => return self.branch_compare(mirrored(op), right, left, when, to),
            (_, ExprKind::Const(0), CompareOp::Ne) => return self.branch(left, when, to),
            (_, ExprKind::Const(0), CompareOp::Eq) => return self.branch(left, !when, to),
            _ => {}
        }
        let (left, right, ty) = facts::as_halves(left, right).unwrap_or((left, right, left.ty));
        let (need, before) = (comparable(ty), self.waiting);
        let right = self.pair((left, need), (right, need), facts::immediate(right, ty), 0);
        self.waiting = before;
        let op = if when { op } else { negated(op) };
        self.jump_if(ty, jump(op, ty.signed), right, to);
    }

    fn jump_if(&mut self, ty: Scalar, op: Jmp, right: Operand, to: Label) {
        match ty.bits {
            32 => self.asm.jump_if32(op, Reg::R0, right, to),
            _ => self.asm.jump_if(op, Reg::R0, right, to),
        }
    }
}

/// The form in which values of a type are compared. Only 32-bit and 64-bit comparisons have instructions.
fn comparable(ty: Scalar) -> Need {
    match ty.bits {
        32 | 64 => Need::Low(ty.bits),
        _ => Need::Full,
    }
}

fn jump(op: CompareOp, signed: bool) -> Jmp {
    match (op, signed) {
        (CompareOp::Eq, _) => Jmp::Eq,
        (CompareOp::Ne, _) => Jmp::Ne,
        (CompareOp::Lt, true) => Jmp::SLt,
        (CompareOp::Le, true) => Jmp::SLe,
        (CompareOp::Gt, true) => Jmp::SGt,
        (CompareOp::Ge, true) => Jmp::SGe,
        (CompareOp::Lt, false) => Jmp::Lt,
        (CompareOp::Le, false) => Jmp::Le,
        (CompareOp::Gt, false) => Jmp::Gt,
        (CompareOp::Ge, false) => Jmp::Ge,
    }
}

fn negated(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Eq => CompareOp::Ne,
        CompareOp::Ne => CompareOp::Eq,
        CompareOp::Lt => CompareOp::Ge,
        CompareOp::Le => CompareOp::Gt,
        CompareOp::Gt => CompareOp::Le,
        CompareOp::Ge => CompareOp::Lt,
    }
}

/// The same comparison with exchanged sides.
fn mirrored(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Lt => CompareOp::Gt,
        CompareOp::Le => CompareOp::Ge,
        CompareOp::Gt => CompareOp::Lt,
        CompareOp::Ge => CompareOp::Le,
        same => same,
    }
}
