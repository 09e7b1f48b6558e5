//! E-code as machine code in user space: the same eBPF that runs in the kernel, compiled by `rbpf`.
//!
//! ```text
//! Program ──ecode::bpf──> eBPF ──rbpf──> x86-64 ──> Jit::call
//! ```
//! `rbpf` checks nothing at run time. So the generated code contains every check (indices, divisors, fuel), and
//! this crate compiles only code of that generator.

mod code;
mod engine;
mod host;

pub use engine::{Jit, JitError, assemble};
