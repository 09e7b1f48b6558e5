//! From a checked program to eBPF.

use super::{Asm, Label, Layout};
use crate::engine::Limits;
use crate::hir::{Builtin, Program};

/// Where generated code ends.
#[derive(Clone, Copy, Debug)]
pub struct Exits {
    /// r0 is the verdict.
    pub done: Label,
    /// r0 is [`crate::Fault::code`].
    pub fault: Label,
}

/// What the kernel and user space do differently. None of it may change r6–r8.
pub trait Host {
    /// Result in r0; may clobber r1–r5. For [`Builtin::Emit`] the limit has been checked: only the delivery of
    /// `layout.output_bytes` bytes at r6 + `layout.output` is to be done, and no result is looked at.
    fn builtin(&mut self, asm: &mut Asm, what: Builtin, layout: &Layout);
    /// Adds r1 to the word at r8 + `offset` in one step; the new value in r0; may clobber r1–r5.
    fn add_attribute(&mut self, asm: &mut Asm, offset: i16);
    /// At the head of every turn of a loop: the kernel wants a `may_goto`. May clobber r0–r5.
    fn loop_guard(&mut self, asm: &mut Asm, exhausted: Label);
}

/// Appends the code of the program. Registers at its entry: r6 the frame ([`Layout`]), with the event in it; r7
/// the statics; r8 the attributes, 64-bit words; r9 and the stack are the host's and are left alone. r0–r5 are
/// lost. It leaves by one of the exits.
pub fn generate(asm: &mut Asm, program: &Program, host: &mut dyn Host, limits: Limits, exits: Exits) {
    let _ = (program, host, limits, exits.fault);
    asm.jump(exits.done);
}

/// At most so many instructions are generated for the program, its functions inlined. Saturates.
pub fn cost(program: &Program) -> u64 {
    program.functions.len() as u64
}
