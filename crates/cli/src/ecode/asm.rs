//! Generated code as text. What differs between kernel and user space (time, process, emission) is shown as calls.

use qfabric_ecode::bpf::{Alu, Asm, Exits, Host, Label, Layout, Reg, Size, generate};
use qfabric_ecode::hir::Builtin;
use qfabric_ecode::{Limits, Program};

use crate::exit::Failure;

/// One line per instruction.
pub fn listing(program: &Program) -> Result<String, Failure> {
    let mut asm = Asm::new();
    let exits = Exits { done: asm.label(), fault: asm.label() };
    generate(&mut asm, program, &mut Shown, Limits::default(), exits);
    asm.bind(exits.fault);
    asm.bind(exits.done);
    asm.exit();
    let code = asm.finish().map_err(Failure::usage)?;
    let head = "; r6 frame, r7 statics, r8 attributes; call 1 now, 2 pid, 3 cpu, 4 emit\n".to_owned();
    let lines = rbpf::disassembler::to_insn_vec(&code.to_bytes());
    Ok(lines.iter().enumerate().fold(head, |text, (at, insn)| text + &format!("{at:5}  {}\n", insn.desc)))
}

/// The host of a listing.
struct Shown;

impl Host for Shown {
    fn builtin(&mut self, asm: &mut Asm, what: Builtin, _: &Layout) {
        asm.call(match what {
            Builtin::Now => 1,
            Builtin::Pid => 2,
            Builtin::Cpu => 3,
            Builtin::Emit => 4,
        });
    }

    fn add_attribute(&mut self, asm: &mut Asm, offset: i16) {
        asm.load(Size::D, Reg::R0, Reg::R8, offset);
        asm.alu64(Alu::Add, Reg::R0, Reg::R1);
        asm.store(Size::D, Reg::R8, offset, Reg::R0);
    }

    fn loop_guard(&mut self, _: &mut Asm, _: Label) {}
}
