//! One eBPF instruction: its fields, its bytes, and the names of the operations.
//! Source: Linux `Documentation/bpf/standardization/instruction-set.rst` (RFC 9669).

/// One instruction of 8 bytes. A 64-bit constant takes two instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insn {
    /// Class, source and operation.
    pub code: u8,
    pub dst: u8,
    pub src: u8,
    /// Distance of a jump, or offset from an address.
    pub off: i16,
    pub imm: i32,
}

impl Insn {
    /// The instruction in the byte format of the kernel and of virtual machines (little endian).
    pub fn to_bytes(self) -> [u8; 8] {
        let ([o0, o1], [i0, i1, i2, i3]) = (self.off.to_le_bytes(), self.imm.to_le_bytes());
        [self.code, self.src << 4 | self.dst, o0, o1, i0, i1, i2, i3]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reg(pub u8);

impl Reg {
    pub const R0: Reg = Reg(0);
    pub const R1: Reg = Reg(1);
    pub const R2: Reg = Reg(2);
    pub const R3: Reg = Reg(3);
    pub const R4: Reg = Reg(4);
    pub const R5: Reg = Reg(5);
    pub const R6: Reg = Reg(6);
    pub const R7: Reg = Reg(7);
    pub const R8: Reg = Reg(8);
    pub const R9: Reg = Reg(9);
    pub const R10: Reg = Reg(10);
}

/// A register's value, or a constant (sign-extended to 64 bits in 64-bit operations).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    Reg(Reg),
    Imm(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Operand::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(imm: i32) -> Self {
        Operand::Imm(imm)
    }
}

/// Width of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    /// 4 bytes.
    W = 0x00,
    /// 2 bytes.
    H = 0x08,
    /// 1 byte.
    B = 0x10,
    /// 8 bytes.
    D = 0x18,
}

impl Size {
    /// The size of a type of 8, 16, 32 or 64 bits.
    pub const fn of_bits(bits: u8) -> Size {
        match bits {
            8 => Size::B,
            16 => Size::H,
            32 => Size::W,
            _ => Size::D,
        }
    }

    pub const fn bytes(self) -> u32 {
        match self {
            Size::B => 1,
            Size::H => 2,
            Size::W => 4,
            Size::D => 8,
        }
    }
}

/// An arithmetic operation. Division and remainder are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Neg = 0x80,
    Mod = 0x90,
    Xor = 0xa0,
    Mov = 0xb0,
    Arsh = 0xc0,
}

/// A condition. `S…` compares signed numbers, the other names compare unsigned numbers. `Set`: the operands have a
/// common bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Jmp {
    Eq = 0x10,
    Gt = 0x20,
    Ge = 0x30,
    Set = 0x40,
    Ne = 0x50,
    SGt = 0x60,
    SGe = 0x70,
    Lt = 0xa0,
    Le = 0xb0,
    SLt = 0xc0,
    SLe = 0xd0,
}

/// Instruction classes and modes.
pub(crate) mod class {
    pub(crate) const LD: u8 = 0x00;
    pub(crate) const LDX: u8 = 0x01;
    pub(crate) const ST: u8 = 0x02;
    pub(crate) const STX: u8 = 0x03;
    pub(crate) const ALU: u8 = 0x04;
    pub(crate) const JMP: u8 = 0x05;
    pub(crate) const JMP32: u8 = 0x06;
    pub(crate) const ALU64: u8 = 0x07;
    /// Loads and stores at register plus offset.
    pub(crate) const MEM: u8 = 0x60;
    /// Atomic operations at register plus offset.
    pub(crate) const ATOMIC: u8 = 0xc0;
    /// The source is a register.
    pub(crate) const X: u8 = 0x08;
    pub(crate) const CALL: u8 = JMP | 0x80;
    pub(crate) const EXIT: u8 = JMP | 0x90;
    pub(crate) const MAY_GOTO: u8 = JMP | 0xe0;
    /// First half of a 64-bit constant.
    pub(crate) const LDDW: u8 = LD | 0x18;
}
