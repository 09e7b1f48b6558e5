//! E-code: a small C-like language for event handlers. A text is checked; the program runs in user space and in
//! the kernel.
//!
//! ```text
//! text ──parse──> syntax tree ──check──> Program (hir) ──┬──> interpreter: the reference
//!                                                        └──> generated eBPF ──> `qfabric-jit`, the kernel
//! ```
//! This crate does no I/O and reads no clock. It treats every source text as hostile until it has been checked.
#![forbid(unsafe_code)]

mod ast;
mod bound;
pub mod bpf;
mod check;
mod diagnostics;
mod engine;
mod environment;
mod format_text;
mod front;
pub mod hir;
mod interp;
mod lexer;
mod parser;
mod pretty;
mod print;
mod suggest;
#[cfg(feature = "testing")]
pub mod testing;

pub use bound::Bound;
pub use check::WHICH;
pub use diagnostics::{Diagnostic, Diagnostics, Warnings};
pub use engine::{CallContext, Engine, Limits};
pub use environment::Environment;
pub use format_text::format_text;
pub use front::{compile, compile_with_warnings, declares_input, parse_formats};
pub use hir::{Fault, FaultKind, Program, Uses};
pub use interp::Interpreter;
pub use pretty::pretty;
pub use print::Prints;
