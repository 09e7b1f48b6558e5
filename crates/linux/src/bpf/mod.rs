//! BPF in safe terms: maps, type information, programs, links. Everything is held by descriptors alone; nothing
//! is pinned, so that what a process made is gone with it.
//!
//! | file | what |
//! |---|---|
//! | `sys.rs` | the system calls, over libbpf's thin wrappers |
//! | `map.rs` | maps, and their memory mapped here |
//! | `btf.rs` | where the kernel's structures have their members |
//! | `program.rs` | loading, attaching, running |

mod btf;
mod map;
mod program;
mod sys;

pub(crate) use btf::{Btf, Shape, TypeId};
pub(crate) use map::{Map, Mapping, set_socket_word};
pub(crate) use program::{Kind, LoadError, Loaded, Program, enable_stats, exists, probe};
pub(crate) use qfabric_ecode::bpf::{Code, TooLarge};
pub(crate) use sys::{Link, SkbSide};
