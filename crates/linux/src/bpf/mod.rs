//! Safe access to BPF: maps, type information, programs, links. Everything is held by descriptors and nothing is
//! pinned, so the kernel frees all objects of a process when the process ends.
//!
//! | file | contents |
//! |---|---|
//! | `sys.rs` | the system calls, through libbpf's thin wrappers |
//! | `map.rs` | maps, and their memory mapped into this process |
//! | `btf.rs` | offsets of the members of the kernel's structures |
//! | `program.rs` | loading, attaching, running |
//! | `object.rs` | the objects that clang compiled from `bpf/`: configure, load, attach |
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
