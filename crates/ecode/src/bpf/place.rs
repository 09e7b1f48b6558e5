//! Places: addresses with checked indices, loads, stores, copies.

use super::arith::{Form, Need};
use super::generate::{FRAME, Generator, STATICS};
use super::{Alu, Jmp, Layout, Reg, Size, facts};
use crate::hir::{Base, Expr, ExprKind, FaultKind, Index, Place};
use qfabric_types::format::Scalar;

/// An address as an instruction takes it.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub base: Reg,
    pub offset: i16,
}

/// Indices of a place that have been evaluated and not yet checked.
#[derive(Clone, Copy, Debug)]
pub enum Indices {
    /// In registers from this one on.
    In(u8),
    /// In temporaries from this one on.
    Waiting(i16),
}

impl Generator<'_> {
    /// A temporary, until [`Generator::waiting`] is set back.
    pub(super) fn temporary(&mut self) -> i16 {
        let slot = self.next_temporary();
        self.waiting += 1;
        assert!(slot < self.layout.input, "the layout has room for all that waits");
        slot as i16
    }

    fn next_temporary(&self) -> u32 {
        Layout::TEMPORARIES + 8 * self.waiting
    }

    /// The value of a register waits in the frame.
    pub(super) fn put_aside(&mut self, reg: Reg) -> i16 {
        let slot = self.temporary();
        self.asm.store(Size::D, FRAME, slot, reg);
        slot
    }

    /// Evaluates a place's indices into registers from `d` on.
    pub(super) fn indices_in(&mut self, place: &Place, d: u8) -> Indices {
        for (index, reg) in place.indices.iter().zip(d..) {
            self.index(index, reg);
        }
        Indices::In(d)
    }

    /// Evaluates a place's indices into temporaries. Takes all scratch registers.
    pub(super) fn indices_aside(&mut self, place: &Place) -> Indices {
        let first = self.next_temporary();
        for index in &place.indices {
            self.index(index, 0);
            self.put_aside(Reg::R0);
        }
        Indices::Waiting(first as i16)
    }

    /// Evaluates a place's indices so that `registers` more are free from `d` + their number on, if they can be.
    pub(super) fn indices_beside(&mut self, place: &Place, d: u8, registers: u32) -> Indices {
        let held = place.indices.len() as u32;
        let all = facts::registers_of_place(place).max(held + registers);
        match u32::from(d) + all <= facts::SCRATCH {
            true => self.indices_in(place, d),
            false => self.indices_aside(place),
        }
    }

    /// A negative 32-bit index need not be extended: as an unsigned number it is out of every range as well.
    fn index(&mut self, index: &Index, d: u8) {
        let value = &index.value;
        match &value.kind {
            ExprKind::Cast(inner) if value.ty.bits == 64 && inner.ty.bits == 32 => self.value(inner, d, Need::Zero),
            _ if value.ty.bits == 32 => self.value(value, d, Need::Zero),
            _ => self.value(value, d, Need::Full),
        }
    }

    /// Checks the indices and gives the address, for which r`d` and, if they wait or are several, r`d+1` are taken.
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

    /// Right before its use: the verifier has to see the comparison, what it bounds and the addition together.
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
        }
    }

    /// An offset that an instruction cannot hold goes into a register.
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

    /// Loads what lies at the place into r`d`: `size` of its lower bytes.
    pub(super) fn load(&mut self, place: &Place, size: Size, d: u8) {
        let before = self.waiting;
        let indices = self.indices_beside(place, d, 0);
        let at = self.address(place, indices, d);
        self.asm.load(size, Reg(d), at.base, at.offset);
        self.waiting = before;
    }

    /// Stores a value; where a `need` is told it is in r0 afterwards. Takes all scratch registers.
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

    /// Where a result is wanted, it is moved into r0.
    pub(super) fn result_from(&mut self, d: u8, need: Option<Need>) {
        if need.is_some() && d != 0 {
            self.asm.mov(Reg::R0, Reg(d));
        }
    }

    /// What a load of a place gives.
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

    /// Zeros, the widest first.
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

    /// A place of many bytes, all of which can be reached from the register.
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

/// What is stored must be right in all its bits, even if only some are looked at afterwards.
fn whole(need: Option<Need>, bits: u8) -> Need {
    match need {
        Some(need @ (Need::Zero | Need::Full)) => need,
        _ => Need::Low(bits),
    }
}

/// Cuts bytes into as few accesses as there can be: where each begins, and its size.
fn pieces(bytes: u32) -> impl Iterator<Item = (u32, Size)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let size = [Size::D, Size::W, Size::H, Size::B].into_iter().find(|size| at + size.bytes() <= bytes)?;
        at += size.bytes();
        Some((at - size.bytes(), size))
    })
}
