//! Generates expressions: code that leaves a value in a register.
//!
//! `value` puts a value into r`d`. It may change r`d` and all higher scratch registers, but no lower ones. Code
//! that needs all of them (`facts::registers`) is generated only with `d` = 0 and with no value waiting in a
//! register: the caller stores such values in the frame first.

use super::arith::{Apply, Form, Need};
use super::generate::{ATTRIBUTES, FRAME, Generator};
use super::place::Address;
use super::{Alu, Jmp, Layout, Operand, Reg, Size, facts};
use crate::hir::{BinaryOp, Builtin, Expr, ExprKind, Place};
use qfabric_types::format::Scalar;

/// The parts of `a op= b`, `++a` and `a++`.
#[derive(Clone, Copy)]
struct Update<'a> {
    place: &'a Place,
    op: BinaryOp,
    wide: Scalar,
    value: &'a Expr,
    post: bool,
    line: u32,
}

impl Generator<'_> {
    /// Generates the effects of the expression without its value. May change all scratch registers.
    pub(super) fn effect(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Const(_) | ExprKind::Attr(_) => {}
            ExprKind::Load(place) if place.indices.is_empty() => {}
            ExprKind::Store(place, value) => self.store(place, value, None),
            ExprKind::Update { place, op, wide, value, post, line } => {
                let update = Update { place, op: *op, wide: *wide, value, post: *post, line: *line };
                self.update(update, None);
            }
            ExprKind::Copy { to, from, bytes } => self.copy(to, from, *bytes),
            ExprKind::Cast(inner) => self.effect(inner),
            ExprKind::Comma(first, last) => {
                self.effect(first);
                self.effect(last);
            }
            ExprKind::Select(condition, yes, no) => {
                self.either(condition, |this| this.effect(yes), |this| this.effect(no))
            }
            ExprKind::And(left, right) => self.effect_unless(left, false, right),
            ExprKind::Or(left, right) => self.effect_unless(left, true, right),
            ExprKind::Call(function, arguments) => self.call(*function, arguments, None),
            _ => self.value(expr, 0, Need::Low(8)),
        }
    }

    fn effect_unless(&mut self, condition: &Expr, when: bool, expr: &Expr) {
        let end = self.asm.label();
        self.branch(condition, when, end);
        self.effect(expr);
        self.asm.bind(end);
    }

    /// Puts a value into r`d` in the required form.
    pub(super) fn value(&mut self, expr: &Expr, d: u8, need: Need) {
        debug_assert!(d == 0 || u32::from(d) + facts::registers(expr) <= facts::SCRATCH);
        let before = self.waiting;
        let form = self.raw(expr, d, need);
        self.waiting = before;
        self.fit(Reg(d), expr.ty, form, need, || facts::never_negative(expr));
    }

    /// Puts a value into r`d` in the form that results naturally, or in the required form.
    fn raw(&mut self, expr: &Expr, d: u8, need: Need) -> Form {
        let ty = expr.ty;
        match &expr.kind {
            ExprKind::Const(value) => return self.constant(*value, ty, d, need),
            ExprKind::Load(place) => {
                self.load(place, Size::of_bits(ty.bits), d);
                return Self::loaded(ty);
            }
            ExprKind::Attr(number) => self.asm.load(Size::D, Reg(d), ATTRIBUTES, attribute(*number)),
            ExprKind::SetAttr(number, value) => {
                self.value(value, d, Need::Full);
                self.host.set_attribute(self.asm, attribute(*number), Reg(d));
            }
            ExprKind::AddAttr(number, value) => self.add_attribute(*number, value),
            ExprKind::Neg(one) => {
                self.value(one, d, Need::Low(ty.bits));
                return self.negate(ty, Reg(d));
            }
            ExprKind::Not(one) => {
                self.value(one, d, Need::Low(ty.bits));
                return self.invert(ty, Reg(d));
            }
            ExprKind::Binary { op, left, right, line } => return self.binary((*op, *line), left, right, d),
            ExprKind::Cast(inner) => return self.cast(inner, ty, d, need),
            ExprKind::Comma(first, last) => {
                self.effect(first);
                return self.as_needed(last, need);
            }
            ExprKind::Store(place, value) => {
                self.store(place, value, Some(need));
                return given(need);
            }
            ExprKind::Copy { to, from, bytes } => {
                self.copy(to, from, *bytes);
                self.asm.mov(Reg(d), 0);
            }
            ExprKind::Update { place, op, wide, value, post, line } => {
                let update = Update { place, op: *op, wide: *wide, value, post: *post, line: *line };
                self.update(update, Some(need));
                return given(need);
            }
            ExprKind::Compare(..) | ExprKind::And(..) | ExprKind::Or(..) => self.truth(expr),
            ExprKind::Select(condition, yes, no) => {
                self.select(condition, yes, no, (facts::flows(expr, self.flows), need));
                return given(need);
            }
            ExprKind::Call(function, arguments) => {
                self.call(*function, arguments, Some(need));
                return given(need);
            }
            ExprKind::Builtin(Builtin::Emit, _) => self.emit(),
            ExprKind::Builtin(what, _) => self.builtin(*what),
        }
        Form::Full
    }

    fn as_needed(&mut self, expr: &Expr, need: Need) -> Form {
        self.value(expr, 0, need);
        given(need)
    }

    fn constant(&mut self, value: i64, ty: Scalar, d: u8, need: Need) -> Form {
        let zero_extended = Scalar { signed: false, ..ty }.wrap(value);
        let value = if need == Need::Zero { zero_extended } else { value };
        match (i32::try_from(value), u32::try_from(value)) {
            (Ok(value), _) => self.asm.mov(Reg(d), value),
            (_, Ok(value)) => self.asm.alu32(Alu::Mov, Reg(d), value as i32),
            _ => self.asm.lddw(Reg(d), value),
        }
        given(need)
    }

    /// Evaluates two operands: the first into r`d`, the second into r`d+1` unless it is a constant that needs no
    /// register.
    pub(super) fn pair(&mut self, left: (&Expr, Need), right: (&Expr, Need), imm: Option<i32>, d: u8) -> Operand {
        let beside = Reg(d + 1);
        if let Some(imm) = imm {
            self.value(left.0, d, left.1);
            return Operand::Imm(imm);
        }
        if u32::from(d) + 1 + facts::registers(right.0) <= facts::SCRATCH {
            self.value(left.0, d, left.1);
            self.value(right.0, d + 1, right.1);
            return Operand::Reg(beside);
        }
        if matches!(left.0.kind, ExprKind::Const(_)) {
            self.value(right.0, d, right.1);
            self.asm.mov(beside, Reg(d));
            self.value(left.0, d, left.1);
            return Operand::Reg(beside);
        }
        self.value(left.0, d, left.1);
        let aside = self.put_aside(Reg(d));
        self.value(right.0, d, right.1);
        self.asm.mov(beside, Reg(d));
        self.asm.load(Size::D, Reg(d), FRAME, aside);
        Operand::Reg(beside)
    }

    fn binary(&mut self, (op, line): (BinaryOp, u32), left: &Expr, right: &Expr, d: u8) -> Form {
        if commutes(op) && matches!(left.kind, ExprKind::Const(_)) && !matches!(right.kind, ExprKind::Const(_)) {
            return self.binary((op, line), right, left, d);
        }
        let how = Apply { op, ty: left.ty, scratch: d + 2, line, positive: divides_positive(op, left, right) };
        let right_need = count_need(op).unwrap_or(how.need());
        let right = self.pair((left, how.need()), (right, right_need), facts::immediate(right, right.ty), d);
        self.apply(how, Reg(d), right)
    }

    /// A conversion to a narrower type takes the lower bits, to a wider type the whole value.
    fn cast(&mut self, inner: &Expr, ty: Scalar, d: u8, need: Need) -> Form {
        if let (ExprKind::Load(place), true) = (&inner.kind, ty.bits < inner.ty.bits) {
            self.load(place, Size::of_bits(ty.bits), d);
            return Self::loaded(ty);
        }
        let from = inner.ty;
        match need {
            Need::Low(bits) if bits <= from.bits => self.value(inner, d, need),
            _ if ty.bits < from.bits => {
                self.value(inner, d, Need::Low(ty.bits));
                return Form::Low;
            }
            _ if ty.bits == from.bits && from.signed == ty.signed => {
                self.value(inner, d, need);
                return given(need);
            }
            _ if ty.bits == from.bits => {
                self.value(inner, d, Need::Zero);
                return Form::Zero;
            }
            _ => return self.widen(inner, ty, d),
        }
        Form::Low
    }

    fn widen(&mut self, inner: &Expr, ty: Scalar, d: u8) -> Form {
        self.value(inner, d, Need::Full);
        match (inner.ty.signed, ty.signed) {
            (false, false) => Form::Zero,
            // An unsigned number is positive in the wider type, so both forms are equal.
            (false, true) | (true, true) => Form::Full,
            (true, false) => Form::Low,
        }
    }

    /// Puts 0 or 1 into r0.
    fn truth(&mut self, expr: &Expr) {
        self.either(expr, |this| this.asm.mov(Reg::R0, 1), |this| this.asm.mov(Reg::R0, 0));
    }

    /// Generates one of two pieces of code, depending on the condition.
    fn either(&mut self, condition: &Expr, yes: impl FnOnce(&mut Self), no: impl FnOnce(&mut Self)) {
        let (otherwise, end) = (self.asm.label(), self.asm.label());
        self.branch(condition, false, otherwise);
        yes(self);
        self.asm.jump(end);
        self.asm.bind(otherwise);
        no(self);
        self.asm.bind(end);
    }

    /// Puts the result into r0. Many different results go through the frame, see [`facts::in_register`].
    fn select(&mut self, condition: &Expr, yes: &Expr, no: &Expr, (flows, need): (u64, Need)) {
        if flows > 1 {
            return self.either(condition, |this| this.value(yes, 0, need), |this| this.value(no, 0, need));
        }
        let slot = self.temporary();
        let arm = |this: &mut Self, value| {
            this.value(value, 0, need);
            this.asm.store(Size::D, FRAME, slot, Reg::R0);
        };
        self.either(condition, |this| arm(this, yes), |this| arm(this, no));
        self.asm.load(Size::D, Reg::R0, FRAME, slot);
    }

    fn add_attribute(&mut self, number: u32, value: &Expr) {
        self.value_in_r1(value, Need::Full);
        if self.asm.is_reachable() {
            self.host.add_attribute(self.asm, attribute(number));
        }
    }

    fn builtin(&mut self, what: Builtin) {
        if self.asm.is_reachable() {
            self.host.builtin(self.asm, what, self.layout);
        }
    }

    /// Puts 1 into r0, or 0 if the call has no emissions left.
    fn emit(&mut self) {
        let end = self.asm.label();
        self.asm.load(Size::W, Reg::R0, FRAME, Layout::EMISSIONS as i16);
        self.asm.jump_if(Jmp::Eq, Reg::R0, 0, end);
        self.asm.alu64(Alu::Sub, Reg::R0, 1);
        self.asm.store(Size::W, FRAME, Layout::EMISSIONS as i16, Reg::R0);
        self.builtin(Builtin::Emit);
        self.asm.mov(Reg::R0, 1);
        self.asm.bind(end);
    }

    fn value_in_r1(&mut self, value: &Expr, need: Need) {
        if facts::registers(value) < facts::SCRATCH {
            return self.value(value, 1, need);
        }
        self.value(value, 0, need);
        self.asm.mov(Reg::R1, Reg::R0);
    }

    /// Registers: r0 the address (if there are indices), r1 the right side, r2 the left side, r3 and r4 scratch,
    /// r5 the former value.
    fn update(&mut self, update: Update, need: Option<Need>) {
        let before = self.waiting;
        let Update { place, op, wide, value, .. } = update;
        let ty = place.ty;
        let positive = ty.bits < wide.bits && !ty.signed && facts::never_negative(value);
        let how = Apply { op, ty: wide, scratch: 3, line: update.line, positive };
        let (at, right) = self.sides(place, value, count_need(op).unwrap_or(how.need()));
        self.asm.load(Size::of_bits(ty.bits), Reg::R2, at.base, at.offset);
        if let (true, Some(need)) = (update.post, need) {
            self.asm.mov(Reg::R5, Reg::R2);
            self.fit(Reg::R5, ty, Self::loaded(ty), need, || false);
        }
        self.combine(how, ty, right);
        self.asm.store(Size::of_bits(ty.bits), at.base, at.offset, Reg::R2);
        if let (false, Some(need)) = (update.post, need) {
            self.fit(Reg::R2, ty, Form::Low, need, || false);
        }
        self.result_from(if update.post { 5 } else { 2 }, need);
        self.waiting = before;
    }

    /// Evaluates the place of an update and then its right side.
    fn sides(&mut self, place: &Place, value: &Expr, need: Need) -> (Address, Operand) {
        if let Some(imm) = facts::immediate(value, value.ty) {
            let indices = self.indices_beside(place, 0, 0);
            return (self.address(place, indices, 0), Operand::Imm(imm));
        }
        if place.indices.len() <= 1 && facts::registers(value) < facts::SCRATCH || place.indices.is_empty() {
            let indices = self.indices_beside(place, 0, facts::registers(value));
            self.value_in_r1(value, need);
            return (self.address(place, indices, 0), Operand::Reg(Reg::R1));
        }
        let indices = self.indices_aside(place);
        self.value(value, 0, need);
        let aside = self.put_aside(Reg::R0);
        let at = self.address(place, indices, 0);
        self.asm.load(Size::D, Reg::R1, FRAME, aside);
        (at, Operand::Reg(Reg::R1))
    }

    /// r2 = r2 op right. If the lower bits of the result depend only on lower bits of the operands, the loaded
    /// bits need no extension, because the store uses no more bits.
    fn combine(&mut self, how: Apply, narrow: Scalar, right: Operand) {
        if narrow.bits >= how.ty.bits || !keeps_low_bits(how.op) {
            if narrow.bits < how.ty.bits {
                self.fit(Reg::R2, narrow, Self::loaded(narrow), Need::Full, || false);
            }
            self.fit(Reg::R2, how.ty, Form::Low, how.need(), || false);
        }
        self.apply(how, Reg::R2, right);
    }
}

/// Whether the operator is a division of numbers that cannot be negative.
fn divides_positive(op: BinaryOp, left: &Expr, right: &Expr) -> bool {
    matches!(op, BinaryOp::Div | BinaryOp::Rem) && facts::never_negative(left) && facts::never_negative(right)
}

fn commutes(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor)
}

/// The form of a value that was generated with this need.
fn given(need: Need) -> Form {
    match need {
        Need::Low(_) => Form::Low,
        Need::Zero => Form::Zero,
        Need::Full => Form::Full,
    }
}

/// A shift count has its own type; only its lowest bits matter.
fn count_need(op: BinaryOp) -> Option<Need> {
    matches!(op, BinaryOp::Shl | BinaryOp::Shr).then_some(Need::Low(8))
}

/// Whether the lower bits of the result depend only on lower bits of the operands.
fn keeps_low_bits(op: BinaryOp) -> bool {
    !matches!(op, BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shr)
}

fn attribute(number: u32) -> i16 {
    (8 * number) as i16
}
