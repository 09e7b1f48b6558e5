//! E-code as eBPF: an assembler, and a generator from checked programs. Pure: bytes come out, nothing is loaded.
//!
//! What is generated uses the classic instructions alone, so that the kernel and a user-space machine run the same;
//! what differs between them (time, attributes, delivery, a loop's guard) is asked of a [`Host`].

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
