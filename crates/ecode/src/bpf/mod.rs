//! E-code as eBPF: an assembler, and a generator for checked programs. Pure: it produces bytes and loads nothing.
//!
//! The generated code uses only classic instructions, so that the kernel and a user-space machine run the same
//! code. A [`Host`] emits the parts that differ between them: time, attributes, delivery, and the guard of a loop.

mod arith;
mod asm;
mod branch;
mod call;
mod expr;
mod facts;
mod generate;
mod insn;
mod layout;
mod measure;
mod place;
mod tally;
mod text;
mod walk;

pub use asm::{Asm, Code, Label, TooLarge};
pub use generate::{Exits, Host, generate};
pub use insn::{Alu, Insn, Jmp, Operand, Reg, Size};
pub use layout::Layout;
pub(crate) use measure::costs;
pub use measure::{Measure, measure};
pub(crate) use walk::calls;
