//! E-code: a small C for event handlers, that can be checked, run in user space and run in the kernel.
//!
//! ```text
//! text ──parse──> syntax tree ──check──> Program (hir) ──┬──> interpreter: the reference
//!                                                        └──> generated eBPF ──> `qfabric-jit`, the kernel
//! ```
//! Nothing here does I/O or reads a clock; source text is hostile until checked.
#![forbid(unsafe_code)]

mod diagnostics;
pub mod bpf;
mod engine;
mod environment;
mod front;
pub mod hir;
mod interp;

pub use diagnostics::{Diagnostic, Diagnostics};
pub use engine::{Engine, Limits, World};
pub use environment::Environment;
pub use front::{compile, format_text, parse_formats, pretty};
pub use interp::Interpreter;
pub use hir::{Fault, FaultKind, Program};
