//! Generates arithmetic on values in registers: forms, conversions, operators.

use super::generate::Generator;
use super::{Alu, Jmp, Operand, Reg};
use crate::hir::{BinaryOp, FaultKind};
use qfabric_types::format::Scalar;

/// The form that a use requires of a register with a value of some type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// This number of lower bits must be correct; the upper bits may have any value.
    Low(u8),
    /// Zero-extended from the type's bits to 64, even if the type is signed.
    Zero,
    /// Extended to 64 bits according to the type's sign.
    Full,
}

/// The form in which a register holds a value of some type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Correct in the type's bits; the upper bits may have any value.
    Low,
    /// Zero-extended to 64 bits.
    Zero,
    /// Extended to 64 bits according to the type's sign.
    Full,
}

/// An operator to apply, with its type and its resources.
#[derive(Clone, Copy)]
pub(super) struct Apply {
    pub op: BinaryOp,
    pub ty: Scalar,
    /// The first of two free registers.
    pub scratch: u8,
    /// The source line, for the fault of a division by zero.
    pub line: u32,
    /// Neither operand can be negative.
    pub positive: bool,
}

impl Apply {
    /// The form that both operands must have.
    pub(super) fn need(&self) -> Need {
        operand_need(self.op, self.ty)
    }
}

/// The form of an operator's operands. A shift count is an exception, see `count_need` in `expr.rs`.
pub(super) fn operand_need(op: BinaryOp, ty: Scalar) -> Need {
    match op {
        BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shr if ty.bits < 32 => Need::Full,
        _ => Need::Low(ty.bits),
    }
}

impl Generator<'_> {
    /// Converts a value from one form to another.
    pub(super) fn fit(&mut self, reg: Reg, ty: Scalar, form: Form, need: Need, positive: impl Fn() -> bool) {
        match (need, form) {
            (Need::Low(bits), _) if bits <= ty.bits => {}
            (Need::Zero, Form::Zero) | (Need::Low(_) | Need::Full, Form::Full) => {}
            _ if ty.bits == 64 => {}
            (_, Form::Zero | Form::Full) if !ty.signed || positive() => {}
            (Need::Zero, _) => self.zero_extend(reg, ty.bits),
            _ if ty.signed => self.sign_extend(reg, ty.bits),
            _ => self.zero_extend(reg, ty.bits),
        }
    }

    /// Uses `and` with all ones, because a 32-bit move in rbpf does not clear the upper half. `and` clears it in
    /// every engine.
    fn zero_extend(&mut self, reg: Reg, bits: u8) {
        match bits {
            32 => self.asm.alu32(Alu::And, reg, -1),
            _ => self.asm.alu64(Alu::And, reg, (1 << bits) - 1),
        }
    }

    fn sign_extend(&mut self, reg: Reg, bits: u8) {
        self.asm.alu64(Alu::Lsh, reg, i32::from(64 - bits));
        self.asm.alu64(Alu::Arsh, reg, i32::from(64 - bits));
    }

    /// Emits one instruction on 64-bit numbers, or on 32-bit numbers, which clears the upper half.
    fn alu(&mut self, ty: Scalar, op: Alu, dst: Reg, src: impl Into<Operand>) {
        match ty.bits {
            64 => self.asm.alu64(op, dst, src),
            _ => self.asm.alu32(op, dst, src),
        }
    }

    /// Emits `a = -a`.
    pub(super) fn negate(&mut self, ty: Scalar, a: Reg) -> Form {
        self.alu(ty, Alu::Neg, a, 0);
        result_form(ty)
    }

    pub(super) fn invert(&mut self, ty: Scalar, a: Reg) -> Form {
        self.alu(ty, Alu::Xor, a, -1);
        result_form(ty)
    }

    /// Emits `a = a op b`. May change `b`.
    pub(super) fn apply(&mut self, how: Apply, a: Reg, b: Operand) -> Form {
        match how.op {
            BinaryOp::Add => self.alu(how.ty, Alu::Add, a, b),
            BinaryOp::Sub => self.alu(how.ty, Alu::Sub, a, b),
            BinaryOp::And => self.alu(how.ty, Alu::And, a, b),
            BinaryOp::Or => self.alu(how.ty, Alu::Or, a, b),
            BinaryOp::Xor => self.alu(how.ty, Alu::Xor, a, b),
            BinaryOp::Mul => self.multiply(how.ty, a, b),
            BinaryOp::Shl => self.shift(how.ty, Alu::Lsh, a, b),
            BinaryOp::Shr if how.ty.signed => self.shift(how.ty, Alu::Arsh, a, b),
            BinaryOp::Shr => self.shift(how.ty, Alu::Rsh, a, b),
            BinaryOp::Div | BinaryOp::Rem => self.divide(how, a, b),
        }
        result_form(how.ty)
    }

    fn multiply(&mut self, ty: Scalar, a: Reg, b: Operand) {
        match b {
            Operand::Imm(1) => {}
            Operand::Imm(factor) if factor > 0 && factor.count_ones() == 1 => {
                self.alu(ty, Alu::Lsh, a, factor.trailing_zeros() as i32);
            }
            _ => self.alu(ty, Alu::Mul, a, b),
        }
    }

    /// The hardware takes a shift count modulo 64 or 32.
    fn shift(&mut self, ty: Scalar, op: Alu, a: Reg, b: Operand) {
        let mask = i32::from(ty.bits) - 1;
        match b {
            Operand::Imm(count) if count & mask == 0 => {}
            Operand::Imm(count) => self.alu(ty, op, a, count & mask),
            Operand::Reg(count) => {
                if ty.bits < 32 {
                    self.asm.alu64(Alu::And, count, mask);
                }
                self.alu(ty, op, a, count);
            }
        }
    }

    fn divide(&mut self, how: Apply, a: Reg, b: Operand) {
        self.refuse_zero(how, b);
        let signed = how.ty.signed && !how.positive;
        match b {
            Operand::Imm(by) if signed => self.divide_signed_by(how, a, by),
            Operand::Imm(by) => self.divide_by(how, a, by),
            Operand::Reg(by) if signed => self.divide_signed(how, a, by),
            Operand::Reg(_) => self.alu(how.ty, division(how.op), a, b),
        }
    }

    fn refuse_zero(&mut self, how: Apply, b: Operand) {
        let fault = match b {
            Operand::Imm(by) if by != 0 => return,
            _ => self.fault(FaultKind::Division, how.line),
        };
        match (b, how.ty.bits) {
            (Operand::Imm(_), _) => self.asm.jump(fault),
            (Operand::Reg(by), 64) => self.asm.jump_if(Jmp::Eq, by, 0, fault),
            (Operand::Reg(by), _) => self.asm.jump_if32(Jmp::Eq, by, 0, fault),
        }
    }

    /// Unsigned division by a constant. A power of two becomes a shift or a mask.
    fn divide_by(&mut self, how: Apply, a: Reg, by: i32) {
        let power = by > 0 && by.count_ones() == 1;
        match how.op {
            BinaryOp::Div if power => self.shift(how.ty, Alu::Rsh, a, Operand::Imm(by.trailing_zeros() as i32)),
            BinaryOp::Rem if power => self.alu(how.ty, Alu::And, a, by - 1),
            _ => self.alu(how.ty, division(how.op), a, by),
        }
    }

    /// Computes |a| op |constant| and then sets the sign: a quotient has the sign of both operands, a remainder
    /// the sign of the dividend.
    fn divide_signed_by(&mut self, how: Apply, a: Reg, by: i32) {
        let sign = Reg(how.scratch);
        self.take_sign(how.ty, a, sign);
        match by.checked_abs() {
            Some(by) => self.divide_by(how, a, by),
            // The smallest 32-bit number. Its absolute value 2^31 does not fit into an instruction.
            None if how.op == BinaryOp::Div => self.alu(how.ty, Alu::Rsh, a, 31),
            None => self.alu(how.ty, Alu::And, a, i32::MAX),
        }
        if by < 0 && how.op == BinaryOp::Div {
            self.alu(how.ty, Alu::Xor, sign, -1);
        }
        self.give_sign(how.ty, a, sign);
    }

    fn divide_signed(&mut self, how: Apply, a: Reg, b: Reg) {
        let (sign, other) = (Reg(how.scratch), Reg(how.scratch + 1));
        self.take_sign(how.ty, a, sign);
        self.take_sign(how.ty, b, other);
        self.alu(how.ty, division(how.op), a, b);
        if how.op == BinaryOp::Div {
            self.alu(how.ty, Alu::Xor, sign, other);
        }
        self.give_sign(how.ty, a, sign);
    }

    /// Sets `sign` to −1 if the number is negative, otherwise to 0, and replaces the number with its absolute
    /// value.
    fn take_sign(&mut self, ty: Scalar, number: Reg, sign: Reg) {
        self.asm.mov(sign, number);
        self.alu(ty, Alu::Arsh, sign, if ty.bits == 64 { 63 } else { 31 });
        self.give_sign(ty, number, sign);
    }

    /// Negates the number if `sign` is −1.
    fn give_sign(&mut self, ty: Scalar, number: Reg, sign: Reg) {
        self.alu(ty, Alu::Xor, number, sign);
        self.alu(ty, Alu::Sub, number, sign);
    }
}

fn division(op: BinaryOp) -> Alu {
    if op == BinaryOp::Div { Alu::Div } else { Alu::Mod }
}

/// 64-bit results are complete; 32-bit instructions clear the upper half; smaller types have no instructions.
fn result_form(ty: Scalar) -> Form {
    match ty.bits {
        64 => Form::Full,
        32 => Form::Zero,
        _ => Form::Low,
    }
}
