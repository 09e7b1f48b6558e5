//! E-code: a small C for event handlers, that can be checked, run in user space and run in the kernel.
//!
//! ```text
//! text ──parse──> syntax tree ──check──> Program (hir) ──┬──> interpreter: the reference
//!                                                        └──> generated eBPF ──> `qfabric-jit`, the kernel
//! ```
//! Nothing here does I/O or reads a clock; source text is hostile until checked.
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
mod suggest;
#[cfg(feature = "testing")]
pub mod testing;

pub use bound::Bound;
pub use diagnostics::{Diagnostic, Diagnostics};
pub use engine::{Engine, Limits, World};
pub use environment::Environment;
pub use format_text::format_text;
pub use front::{compile, parse_formats};
pub use hir::{Fault, FaultKind, Program, Uses};
pub use interp::Interpreter;
pub use pretty::pretty;
