//! E-code as machine code in user space: the code that the kernel would run, compiled by `rbpf`.
//!
//! ```text
//! Program ──ecode::bpf──> eBPF ──rbpf──> x86-64 ──> Jit::call
//! ```
//! `rbpf` checks nothing at run time, so every check (indices, divisors, fuel) is in the generated code, and only
//! code of that generator ever comes here.

mod code;
mod engine;
mod host;

pub use engine::{Jit, JitError, assemble};
