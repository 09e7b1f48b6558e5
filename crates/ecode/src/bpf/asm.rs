//! An assembler for eBPF: instructions in order, and jumps to labels that can be bound later.

use qfabric_types::api::Problem;

use super::insn::{Alu, Insn, Jmp, Operand, Reg, Size, class};

/// A place in the code. A label is bound once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(u32);

/// Assembled code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    pub insns: Vec<Insn>,
    /// For each instruction whose `imm` will hold a map's descriptor: its index and the caller's number of the map
    /// ([`Asm::lddw_map`], [`Asm::lddw_map_value`]).
    pub relocations: Vec<(usize, u32)>,
}

impl Code {
    /// The code in the byte format of the kernel and of virtual machines.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.insns.iter().flat_map(|insn| insn.to_bytes()).collect()
    }
}

/// A jump spans more instructions than its 16-bit offset can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub struct TooLarge {
    /// Number of instructions from the jump to its target.
    pub distance: i64,
}

impl TooLarge {
    pub fn problem(&self) -> Problem {
        let message = format!("a jump spans {} instructions, the limit is 32767", self.distance);
        Problem::new("chain", message, "make the program smaller, or call its functions in fewer places")
    }
}

/// Builds code and omits unreachable instructions, because the kernel refuses programs that contain them. After a
/// jump or an exit it emits nothing until a label is bound that some jump targets.
#[derive(Default)]
pub struct Asm {
    insns: Vec<Insn>,
    relocations: Vec<(usize, u32)>,
    labels: Vec<Target>,
    /// Index of the jump instruction and its target label, in order.
    jumps: Vec<(usize, Label)>,
    /// Labels in the order in which they were bound, which is the order of their places.
    bound: Vec<Label>,
    unreachable: bool,
}

#[derive(Clone, Copy, Default)]
struct Target {
    /// Index of the instruction after the label; `None` before the label is bound.
    at: Option<usize>,
    /// Whether any jump targets the label.
    used: bool,
}

impl Asm {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.insns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.insns.is_empty()
    }

    /// Creates a label, which must be bound later if a jump targets it.
    pub fn label(&mut self) -> Label {
        self.labels.push(Target::default());
        Label(self.labels.len() as u32 - 1)
    }

    /// Binds the label to the next instruction. Removes a jump to this label directly before it.
    pub fn bind(&mut self, label: Label) {
        let target = &mut self.labels[label.0 as usize];
        assert!(target.at.is_none(), "a label is bound once");
        target.at = Some(self.insns.len());
        self.unreachable &= !target.used;
        self.bound.push(label);
        while self.ends_with_jump_to_here() {
            self.remove_jump();
        }
    }

    /// Whether control can reach the next instruction.
    pub fn is_reachable(&self) -> bool {
        !self.unreachable
    }

    /// Jumps to the label.
    pub fn jump(&mut self, to: Label) {
        self.jump_by(class::JMP, Reg::R0, Reg::R0, 0, to);
        self.unreachable = true;
    }

    /// Jumps to the label if the 64-bit comparison holds.
    pub fn jump_if(&mut self, op: Jmp, dst: Reg, src: impl Into<Operand>, to: Label) {
        self.compare(class::JMP | op as u8, dst, src.into(), to);
    }

    /// Jumps to the label if the comparison of the lower 32 bits holds.
    pub fn jump_if32(&mut self, op: Jmp, dst: Reg, src: impl Into<Operand>, to: Label) {
        self.compare(class::JMP32 | op as u8, dst, src.into(), to);
    }

    /// Jumps to the label when the kernel's own limit of iterations is reached (Linux 6.9).
    pub fn may_goto(&mut self, exhausted: Label) {
        self.jump_by(class::MAY_GOTO, Reg::R0, Reg::R0, 0, exhausted);
    }

    /// `dst = src`, 64 bits; a constant is sign-extended.
    pub fn mov(&mut self, dst: Reg, src: impl Into<Operand>) {
        self.alu64(Alu::Mov, dst, src);
    }

    /// `dst = dst op src`, 64 bits.
    pub fn alu64(&mut self, op: Alu, dst: Reg, src: impl Into<Operand>) {
        self.arithmetic(class::ALU64 | op as u8, dst, src.into());
    }

    /// `dst = dst op src` on 32 bits; the upper half becomes zero. Do not use it to move a register: rbpf handles
    /// that incorrectly.
    pub fn alu32(&mut self, op: Alu, dst: Reg, src: impl Into<Operand>) {
        self.arithmetic(class::ALU | op as u8, dst, src.into());
    }

    /// `dst = *(base + off)`, zero-extended.
    pub fn load(&mut self, size: Size, dst: Reg, base: Reg, off: i16) {
        self.push(class::LDX | class::MEM | size as u8, dst, base, off, 0);
    }

    /// `*(base + off) = src`.
    pub fn store(&mut self, size: Size, base: Reg, off: i16, src: Reg) {
        self.push(class::STX | class::MEM | size as u8, base, src, off, 0);
    }

    /// `*(base + off) = imm`, sign-extended to the size.
    pub fn store_imm(&mut self, size: Size, base: Reg, off: i16, imm: i32) {
        self.push(class::ST | class::MEM | size as u8, base, Reg::R0, off, imm);
    }

    /// `dst = imm`. Takes two instructions.
    pub fn lddw(&mut self, dst: Reg, imm: i64) {
        self.wide(dst, 0, imm as i32, (imm >> 32) as i32);
    }

    /// `dst` = reference to the map, as helpers expect it. `map` is the caller's number of the map and goes to
    /// `relocations`.
    pub fn lddw_map(&mut self, dst: Reg, map: u32) {
        self.relocate(map);
        self.wide(dst, PSEUDO_MAP_FD, 0, 0);
    }

    /// `dst` = address inside the value of a map with one entry.
    pub fn lddw_map_value(&mut self, dst: Reg, map: u32, offset: u32) {
        self.relocate(map);
        self.wide(dst, PSEUDO_MAP_VALUE, 0, offset as i32);
    }

    /// Calls a helper: arguments in r1–r5, result in r0; r1–r5 are overwritten.
    pub fn call(&mut self, helper: i32) {
        self.push(class::CALL, Reg::R0, Reg::R0, 0, helper);
    }

    /// Calls a kernel function by its BTF id.
    pub fn call_kfunc(&mut self, btf_id: i32) {
        self.push(class::CALL, Reg::R0, Reg(PSEUDO_KFUNC_CALL), 0, btf_id);
    }

    /// `*(base + off) += src` as one atomic step (4 or 8 bytes).
    pub fn atomic_add(&mut self, size: Size, base: Reg, off: i16, src: Reg) {
        self.atomic(size, base, off, src, Alu::Add as i32);
    }

    /// `*(base + off) += src` as one atomic step; `src` receives the former value.
    pub fn atomic_fetch_add(&mut self, size: Size, base: Reg, off: i16, src: Reg) {
        self.atomic(size, base, off, src, Alu::Add as i32 | FETCH);
    }

    /// `*(base + off) |= src` as one atomic step.
    pub fn atomic_or(&mut self, size: Size, base: Reg, off: i16, src: Reg) {
        self.atomic(size, base, off, src, Alu::Or as i32);
    }

    /// `*(base + off) |= src` as one atomic step; `src` receives the former value.
    pub fn atomic_fetch_or(&mut self, size: Size, base: Reg, off: i16, src: Reg) {
        self.atomic(size, base, off, src, Alu::Or as i32 | FETCH);
    }

    /// `*(base + off) &= src` as one atomic step.
    pub fn atomic_and(&mut self, size: Size, base: Reg, off: i16, src: Reg) {
        self.atomic(size, base, off, src, Alu::And as i32);
    }

    /// `*(base + off) &= src` as one atomic step; `src` receives the former value.
    pub fn atomic_fetch_and(&mut self, size: Size, base: Reg, off: i16, src: Reg) {
        self.atomic(size, base, off, src, Alu::And as i32 | FETCH);
    }

    /// Exchanges `*(base + off)` and `src` as one atomic step.
    pub fn atomic_xchg(&mut self, size: Size, base: Reg, off: i16, src: Reg) {
        self.atomic(size, base, off, src, XCHG | FETCH);
    }

    /// If `*(base + off)` equals r0, sets it to `src`. In both cases r0 receives the former value.
    pub fn atomic_cmpxchg(&mut self, size: Size, base: Reg, off: i16, src: Reg) {
        self.atomic(size, base, off, src, CMPXCHG | FETCH);
    }

    /// Ends the program with the result in r0.
    pub fn exit(&mut self) {
        self.push(class::EXIT, Reg::R0, Reg::R0, 0, 0);
        self.unreachable = true;
    }

    /// Resolves the jumps and returns the code. All labels that a jump targets must be bound.
    pub fn finish(mut self) -> Result<Code, TooLarge> {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let target = self.labels[label.0 as usize].at.expect("the target of a jump is bound");
            let distance = target as i64 - at as i64 - 1;
            self.insns[at].off = i16::try_from(distance).map_err(|_| TooLarge { distance: distance.abs() })?;
        }
        Ok(Code { insns: self.insns, relocations: self.relocations })
    }

    fn compare(&mut self, code: u8, dst: Reg, src: Operand, to: Label) {
        match src {
            Operand::Reg(src) => self.jump_by(code | class::X, dst, src, 0, to),
            Operand::Imm(imm) => self.jump_by(code, dst, Reg::R0, imm, to),
        }
    }

    fn jump_by(&mut self, code: u8, dst: Reg, src: Reg, imm: i32, to: Label) {
        if self.unreachable {
            return;
        }
        self.jumps.push((self.insns.len(), to));
        self.labels[to.0 as usize].used = true;
        self.push(code, dst, src, 0, imm);
    }

    /// Number of labels bound after the last instruction.
    fn labels_here(&self) -> usize {
        let is_here = |label: &&Label| self.labels[label.0 as usize].at == Some(self.insns.len());
        self.bound.iter().rev().take_while(is_here).count()
    }

    fn ends_with_jump_to_here(&self) -> bool {
        let here = &self.bound[self.bound.len() - self.labels_here()..];
        let last = self.insns.len().wrapping_sub(1);
        let jump = self.jumps.last().filter(|(at, to)| *at == last && here.contains(to));
        jump.is_some() && self.insns[last].code == class::JMP
    }

    fn remove_jump(&mut self) {
        let first = self.bound.len() - self.labels_here();
        self.insns.pop();
        self.jumps.pop();
        self.unreachable = false;
        for label in &self.bound[first..] {
            self.labels[label.0 as usize].at = Some(self.insns.len());
        }
    }

    fn relocate(&mut self, map: u32) {
        if !self.unreachable {
            self.relocations.push((self.insns.len(), map));
        }
    }

    fn arithmetic(&mut self, code: u8, dst: Reg, src: Operand) {
        match src {
            Operand::Reg(src) => self.push(code | class::X, dst, src, 0, 0),
            Operand::Imm(imm) => self.push(code, dst, Reg::R0, 0, imm),
        }
    }

    fn atomic(&mut self, size: Size, base: Reg, off: i16, src: Reg, op: i32) {
        self.push(class::STX | class::ATOMIC | size as u8, base, src, off, op);
    }

    fn wide(&mut self, dst: Reg, pseudo: u8, low: i32, high: i32) {
        self.push(class::LDDW, dst, Reg(pseudo), 0, low);
        self.push(0, Reg::R0, Reg::R0, 0, high);
    }

    fn push(&mut self, code: u8, dst: Reg, src: Reg, off: i16, imm: i32) {
        if self.unreachable {
            return;
        }
        self.insns.push(Insn { code, dst: dst.0, src: src.0, off, imm });
    }
}

const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
const PSEUDO_KFUNC_CALL: u8 = 2;
/// Flag of an atomic operation: the source register receives the former value.
const FETCH: i32 = 0x01;
const XCHG: i32 = 0xe0;
const CMPXCHG: i32 = 0xf0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_get_their_distance_in_both_directions() {
        let mut asm = Asm::new();
        let (head, end) = (asm.label(), asm.label());
        asm.bind(head);
        asm.jump_if(Jmp::Eq, Reg::R1, 7, end);
        asm.alu64(Alu::Add, Reg::R1, 1);
        asm.jump(head);
        asm.bind(end);
        asm.exit();
        let offsets: Vec<i16> = asm.finish().unwrap().insns.iter().map(|insn| insn.off).collect();
        assert_eq!(offsets, [2, 0, -3, 0]);
    }

    #[test]
    fn unreachable_code_is_omitted() {
        let mut asm = Asm::new();
        let unused = asm.label();
        asm.exit();
        asm.lddw_map(Reg::R1, 3);
        asm.bind(unused);
        asm.mov(Reg::R0, 1);
        let code = asm.finish().unwrap();
        assert_eq!((code.insns.len(), code.relocations.len()), (1, 0));
    }

    #[test]
    fn a_jump_to_the_next_instruction_is_removed() {
        let mut asm = Asm::new();
        let (other, end) = (asm.label(), asm.label());
        asm.jump_if(Jmp::Eq, Reg::R1, 0, other);
        asm.mov(Reg::R0, 1);
        asm.bind(other);
        asm.jump(end);
        asm.bind(end);
        asm.exit();
        assert_eq!(asm.finish().unwrap().insns.len(), 3);
    }

    #[test]
    fn other_labels_move_when_a_jump_is_removed() {
        let mut asm = Asm::new();
        let (other, unused, end) = (asm.label(), asm.label(), asm.label());
        asm.jump_if(Jmp::Eq, Reg::R1, 0, other);
        asm.jump(end);
        asm.bind(other);
        asm.bind(unused);
        asm.bind(end);
        asm.exit();
        let code = asm.finish().unwrap();
        assert_eq!((code.insns.len(), code.insns[0].off), (2, 0));
    }

    #[test]
    fn labels_move_with_every_removed_jump() {
        let mut asm = Asm::new();
        let (between, inner, outer) = (asm.label(), asm.label(), asm.label());
        asm.jump_if(Jmp::Eq, Reg::R1, 0, between);
        asm.jump(outer);
        asm.bind(between);
        asm.jump(inner);
        asm.bind(inner);
        asm.bind(outer);
        asm.exit();
        let code = asm.finish().unwrap();
        assert_eq!((code.insns.len(), code.insns[0].off), (2, 0));
    }

    #[test]
    fn a_jump_that_is_too_far_is_refused() {
        let mut asm = Asm::new();
        let end = asm.label();
        asm.jump_if(Jmp::Eq, Reg::R1, 0, end);
        (0..40_000).for_each(|_| asm.mov(Reg::R0, 0));
        asm.bind(end);
        asm.exit();
        assert_eq!(asm.finish(), Err(TooLarge { distance: 40_000 }));
    }

    #[test]
    fn a_64_bit_constant_takes_two_instructions() {
        let mut asm = Asm::new();
        asm.lddw(Reg::R3, -2);
        let bytes = asm.finish().unwrap().to_bytes();
        assert_eq!(bytes, [0x18, 3, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    }
}
