//! Generates accesses to places: addresses with checked indices, loads, stores, copies.

use super::arith::{Form, Need};
use super::generate::{FRAME, Generator, STATICS};
use super::{Alu, Jmp, Layout, Reg, Size, facts};
use crate::hir::{Base, Expr, ExprKind, FaultKind, Index, Place};
use qfabric_types::format::Scalar;

/// An address in the form that an instruction accepts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub base: Reg,
    pub offset: i16,
}

/// The indices of a place, evaluated but not yet checked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Indices {
    /// In registers, starting with this one.
    In(u8),
    /// In temporaries, starting at this offset.
    Waiting(i16),
}

impl Generator<'_> {
    /// Allocates a temporary. It is free again when [`Generator::waiting`] is reset.
    pub(super) fn temporary(&mut self) -> i16 {
        let slot = self.next_temporary();
        self.waiting += 1;
        assert!(slot < self.layout.input, "the layout has enough temporaries");
        slot as i16
    }

    fn next_temporary(&self) -> u32 {
        Layout::TEMPORARIES + 8 * self.waiting
    }

    /// Stores the value of a register in a temporary.
    pub(super) fn put_aside(&mut self, reg: Reg) -> i16 {
        let slot = self.temporary();
        self.asm.store(Size::D, FRAME, slot, reg);
        slot
    }

    /// Evaluates a place's indices into registers, starting with r`d`.
    pub(super) fn indices_in(&mut self, place: &Place, d: u8) -> Indices {
        for (index, reg) in place.indices.iter().zip(d..) {
            self.index(index, reg);
        }
        Indices::In(d)
    }

    /// Evaluates a place's indices into temporaries. May change all scratch registers.
    pub(super) fn indices_aside(&mut self, place: &Place) -> Indices {
        let first = self.next_temporary();
        for index in &place.indices {
            self.index(index, 0);
            self.put_aside(Reg::R0);
        }
        Indices::Waiting(first as i16)
    }

    /// Evaluates a place's indices, starting with r`d`, and if possible leaves `registers` registers after them
    /// free.
    pub(super) fn indices_beside(&mut self, place: &Place, d: u8, registers: u32) -> Indices {
        let held = place.indices.len() as u32;
        let all = facts::registers_of_place(place).max(held + registers);
        match u32::from(d) + all <= facts::SCRATCH {
            true => self.indices_in(place, d),
            false => self.indices_aside(place),
        }
    }

    /// A negative 32-bit index needs no sign extension: as an unsigned number it is also out of range.
    fn index(&mut self, index: &Index, d: u8) {
        let value = &index.value;
        match &value.kind {
            ExprKind::Cast(inner) if value.ty.bits == 64 && inner.ty.bits == 32 => self.value(inner, d, Need::Zero),
            _ if value.ty.bits == 32 => self.value(value, d, Need::Zero),
            _ => self.value(value, d, Need::Full),
        }
    }

    /// Checks the indices and computes the address. May change r`d`, and also r`d+1` if the indices wait or there
    /// are several.
    pub(super) fn address(&mut self, place: &Place, indices: Indices, d: u8) -> Address {
        let (base, offset) = self.base(place);
        if place.indices.is_empty() {
            return self.near(base, offset, d);
        }
        for (number, index) in place.indices.iter().enumerate() {
            self.add_index(index, number as u8, indices, d);
        }
        self.asm.alu64(Alu::Add, Reg(d), base);
        self.near_pointer(Reg(d), offset)
    }

    /// Checks one index directly before its use: the verifier must see the comparison, the compared register and
    /// the addition together.
    fn add_index(&mut self, index: &Index, number: u8, indices: Indices, d: u8) {
        let reg = match indices {
            Indices::In(first) => Reg(first + number),
            Indices::Waiting(_) => Reg(d + number.min(1)),
        };
        if let Indices::Waiting(slot) = indices {
            self.asm.load(Size::D, reg, FRAME, slot + 8 * i16::from(number));
        }
        let fault = self.fault(FaultKind::Index, index.line);
        self.asm.jump_if(Jmp::Ge, reg, index.count as i32, fault);
        self.scale(reg, index.stride);
        match (number, reg == Reg(d)) {
            (0, true) => {}
            (0, false) => self.asm.mov(Reg(d), reg),
            _ => self.asm.alu64(Alu::Add, Reg(d), reg),
        }
    }

    fn scale(&mut self, reg: Reg, stride: u32) {
        match stride {
            1 => {}
            _ if stride.is_power_of_two() => self.asm.alu64(Alu::Lsh, reg, stride.trailing_zeros() as i32),
            _ => self.asm.alu64(Alu::Mul, reg, stride as i32),
        }
    }

    fn base(&self, place: &Place) -> (Reg, u32) {
        match place.base {
            Base::Input => (FRAME, self.layout.input + place.offset),
            Base::Output => (FRAME, self.layout.output + place.offset),
            Base::Static => (STATICS, place.offset),
            Base::Local => (FRAME, self.layout.functions[self.function] + place.offset),
            Base::Frame(function) => (FRAME, self.layout.functions[function.0 as usize] + place.offset),
        }
    }

    /// Moves the address into r`d` if the offset does not fit into an instruction.
    pub(super) fn near(&mut self, base: Reg, offset: u32, d: u8) -> Address {
        if let Ok(offset) = i16::try_from(offset) {
            return Address { base, offset };
        }
        self.asm.mov(Reg(d), base);
        self.near_pointer(Reg(d), offset)
    }

    fn near_pointer(&mut self, pointer: Reg, offset: u32) -> Address {
        if let Ok(offset) = i16::try_from(offset) {
            return Address { base: pointer, offset };
        }
        self.asm.alu64(Alu::Add, pointer, offset as i32);
        Address { base: pointer, offset: 0 }
    }

    /// Loads the lower `size` bytes of the place into r`d`.
    pub(super) fn load(&mut self, place: &Place, size: Size, d: u8) {
        let before = self.waiting;
        let indices = self.indices_beside(place, d, 0);
        let at = self.address(place, indices, d);
        self.asm.load(size, Reg(d), at.base, at.offset);
        self.waiting = before;
    }

    /// Stores a value. If `need` is set, the value is also in r0 afterwards. May change all scratch registers.
    pub(super) fn store(&mut self, place: &Place, value: &Expr, need: Option<Need>) {
        let before = self.waiting;
        let size = Size::of_bits(place.ty.bits);
        let indices = self.indices_beside(place, 0, facts::registers(value));
        if let (None, Some(imm)) = (need, facts::immediate(value, place.ty)) {
            let at = self.address(place, indices, 0);
            self.asm.store_imm(size, at.base, at.offset, imm);
        } else {
            let (d, pointer) = match indices {
                Indices::In(_) => (place.indices.len() as u8, 0),
                Indices::Waiting(_) => (0, 1),
            };
            self.value(value, d, whole(need, place.ty.bits));
            let pointer = if place.indices.is_empty() { 1 } else { pointer };
            let at = self.address(place, indices, pointer);
            self.asm.store(size, at.base, at.offset, Reg(d));
            self.result_from(d, need);
        }
        self.waiting = before;
    }

    /// Moves the result into r0 if it is needed.
    pub(super) fn result_from(&mut self, d: u8, need: Option<Need>) {
        if need.is_some() && d != 0 {
            self.asm.mov(Reg::R0, Reg(d));
        }
    }

    /// The form of a value after a load.
    pub(super) fn loaded(ty: Scalar) -> Form {
        if ty.bits == 64 { Form::Full } else { Form::Zero }
    }

    pub(super) fn clear(&mut self, place: &Place, bytes: u32) {
        let before = self.waiting;
        let indices = self.indices_beside(place, 0, 0);
        let (base, offset) = self.whole(place, indices, bytes, 0);
        self.clear_bytes(base, offset, bytes);
        self.waiting = before;
    }

    /// Stores zeros, with the widest possible accesses first.
    pub(super) fn clear_bytes(&mut self, base: Reg, offset: u32, bytes: u32) {
        let (base, offset) = self.reach(base, offset, bytes, 0);
        for (at, size) in pieces(bytes) {
            self.asm.store_imm(size, base, (offset + at) as i16, 0);
        }
    }

    pub(super) fn copy(&mut self, to: &Place, from: &Place, bytes: u32) {
        let before = self.waiting;
        let (to_indices, from_indices) = match (to.indices.is_empty(), from.indices.is_empty()) {
            (true, true) => (Indices::In(0), Indices::In(1)),
            _ => (self.indices_aside(to), self.indices_aside(from)),
        };
        let (to, to_offset) = self.whole(to, to_indices, bytes, 0);
        let (from, from_offset) = self.whole(from, from_indices, bytes, 1);
        for (at, size) in pieces(bytes) {
            self.asm.load(size, Reg::R2, from, (from_offset + at) as i16);
            self.asm.store(size, to, (to_offset + at) as i16, Reg::R2);
        }
        self.waiting = before;
    }

    /// The address of a place of many bytes, all of which are within reach of the returned register.
    fn whole(&mut self, place: &Place, indices: Indices, bytes: u32, d: u8) -> (Reg, u32) {
        if place.indices.is_empty() {
            let (base, offset) = self.base(place);
            return self.reach(base, offset, bytes, d);
        }
        let at = self.address(place, indices, d);
        self.reach(at.base, at.offset as u32, bytes, d)
    }

    fn reach(&mut self, base: Reg, offset: u32, bytes: u32, d: u8) -> (Reg, u32) {
        if offset + bytes <= i16::MAX as u32 + 1 {
            return (base, offset);
        }
        if base != Reg(d) {
            self.asm.mov(Reg(d), base);
        }
        self.asm.alu64(Alu::Add, Reg(d), offset as i32);
        (Reg(d), 0)
    }
}

/// All bits of a stored value must be correct, even if the expression's user needs only some of them.
fn whole(need: Option<Need>, bits: u8) -> Need {
    match need {
        Some(need @ (Need::Zero | Need::Full)) => need,
        _ => Need::Low(bits),
    }
}

/// Splits a number of bytes into the fewest accesses; yields the offset and size of each.
fn pieces(bytes: u32) -> impl Iterator<Item = (u32, Size)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let size = [Size::D, Size::W, Size::H, Size::B].into_iter().find(|size| at + size.bytes() <= bytes)?;
        at += size.bytes();
        Some((at - size.bytes(), size))
    })
}
