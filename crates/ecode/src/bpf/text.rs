//! Prints code as text, one instruction per line: index, operation, and the target index of a jump.

use super::insn::{Insn, class};
use super::{Code, Size};
use std::fmt;

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut second_half = None;
        for (number, insn) in self.insns.iter().enumerate() {
            match second_half.take() {
                Some(first) => writeln!(f, "{}", wide(first, *insn))?,
                None => write!(f, "{number:5}  ")?,
            }
            match insn.code {
                class::LDDW => second_half = Some(*insn),
                0 => {}
                _ => writeln!(f, "{}", Line(*insn, number))?,
            }
        }
        Ok(())
    }
}

fn wide(first: Insn, second: Insn) -> String {
    let value = i64::from(second.imm) << 32 | i64::from(first.imm as u32);
    match first.src {
        0 => format!("r{} = {value:#x} ll", first.dst),
        1 => format!("r{} = map", first.dst),
        _ => format!("r{} = map value + {}", first.dst, second.imm),
    }
}

/// An instruction and its index.
struct Line(Insn, usize);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line(insn, number) = *self;
        match insn.code & 7 {
            class::ALU => arithmetic(f, insn, 'w'),
            class::ALU64 => arithmetic(f, insn, 'r'),
            class::LDX => write!(f, "r{} = {}", insn.dst, memory(insn, insn.src)),
            class::ST => write!(f, "{} = {}", memory(insn, insn.dst), insn.imm),
            class::STX if insn.code & 0xe0 == class::ATOMIC => {
                write!(f, "atomic {:#x} {} r{}", insn.imm, memory(insn, insn.dst), insn.src)
            }
            class::STX => write!(f, "{} = r{}", memory(insn, insn.dst), insn.src),
            class::JMP => jump(f, insn, number, 'r'),
            class::JMP32 => jump(f, insn, number, 'w'),
            _ => write!(f, "{:#04x}", insn.code),
        }
    }
}

fn memory(insn: Insn, base: u8) -> String {
    let size = [Size::B, Size::H, Size::W, Size::D].into_iter().find(|size| *size as u8 == insn.code & 0x18);
    format!("*(u{} *)(r{base} {:+})", 8 * size.map_or(8, Size::bytes), insn.off)
}

/// The second operand: a register or a constant.
fn source(insn: Insn, half: char) -> String {
    if insn.code & class::X == 0 { insn.imm.to_string() } else { format!("{half}{}", insn.src) }
}

fn arithmetic(f: &mut fmt::Formatter<'_>, insn: Insn, half: char) -> fmt::Result {
    const OPS: [&str; 13] = ["+=", "-=", "*=", "/=", "|=", "&=", "<<=", ">>=", "= -", "%=", "^=", "=", "s>>="];
    match OPS.get(usize::from(insn.code >> 4)) {
        Some(op @ &"= -") => write!(f, "{half}{} {op}{half}{}", insn.dst, insn.dst),
        Some(op) => write!(f, "{half}{} {op} {}", insn.dst, source(insn, half)),
        None => write!(f, "{:#04x}", insn.code),
    }
}

fn jump(f: &mut fmt::Formatter<'_>, insn: Insn, number: usize, half: char) -> fmt::Result {
    const OPS: [&str; 14] = ["", "==", ">", ">=", "&", "!=", "s>", "s>=", "", "", "<", "<=", "s<", "s<="];
    let to = number as i64 + 1 + i64::from(insn.off);
    match (insn.code, insn.src) {
        (class::JMP, _) => write!(f, "goto {to}"),
        (class::EXIT, _) => write!(f, "exit"),
        (class::MAY_GOTO, _) => write!(f, "may_goto {to}"),
        (class::CALL, 0) => write!(f, "call {}", insn.imm),
        (class::CALL, _) => write!(f, "call kernel function {}", insn.imm),
        (code, _) => {
            let op = OPS.get(usize::from(code >> 4)).unwrap_or(&"?");
            write!(f, "if {half}{} {op} {} goto {to}", insn.dst, source(insn, half))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Alu, Asm, Jmp, Reg};
    use super::*;

    #[test]
    fn code_is_printed_as_assignments_and_jumps() {
        let mut asm = Asm::new();
        let end = asm.label();
        asm.load(Size::W, Reg::R0, Reg::R6, 64);
        asm.jump_if32(Jmp::SGt, Reg::R0, 7, end);
        asm.lddw(Reg::R1, 1 << 40);
        asm.alu64(Alu::Add, Reg::R0, Reg::R1);
        asm.alu32(Alu::Neg, Reg::R0, 0);
        asm.store_imm(Size::B, Reg::R7, -1, 3);
        asm.bind(end);
        asm.exit();
        let text = asm.finish().unwrap().to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        assert_eq!(
            lines,
            [
                "0  r0 = *(u32 *)(r6 +64)",
                "1  if w0 s> 7 goto 7",
                "2  r1 = 0x10000000000 ll",
                "4  r0 += r1",
                "5  w0 = -w0",
                "6  *(u8 *)(r7 -1) = 3",
                "7  exit"
            ]
        );
    }
}
