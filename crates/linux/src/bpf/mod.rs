//! BPF in safe terms: maps, type information, programs, links. Everything is held by descriptors alone; nothing
//! is pinned, so that what a process made is gone with it.
//!
//! | file | what |
//! |---|---|
//! | `sys.rs` | the system calls, over libbpf's thin wrappers |
//! | `map.rs` | maps, and their memory mapped here |
//! | `btf.rs` | where the kernel's structures have their members |
//! | `program.rs` | loading, attaching, running |
//! | `object.rs` | what clang has compiled of `bpf/`: configured, loaded, attached |
//! | `table.rs` | the maps of an object |
//! | `objects.rs` | the objects themselves |

mod btf;
mod map;
pub mod object;
pub mod objects;
mod program;
mod sys;
mod table;

pub(crate) use btf::{Btf, Shape, TypeId};
pub use map::Mapping;
pub(crate) use map::{Map, set_socket_word};
pub use object::{Attached, Entry, Object, ObjectError, OpenObject};
pub(crate) use program::{Kind, LoadError, Loaded, Program, enable_stats, exists, probe};
pub(crate) use qfabric_ecode::bpf::{Code, TooLarge};
pub(crate) use sys::{Link, SkbSide};
pub use table::{Plain, Table, bytes_of_mut};
