//! The only room that uses Linux itself: it applies [`qfabric_types::Setting`]s to real threads and observes these
//! threads.
//!
//! | task | module |
//! |---|---|
//! | reserve a thread, and put it back | [`deadline`] over [`sched_attr`] |
//! | give threads the slots of a dispatch table | [`dispatcher`] |
//! | end a reservation without losing bandwidth | [`leaving`] |
//! | find the capacity of the host | [`capacity`] |
//! | read the bandwidth that the kernel has booked, and its owners | [`books`] |
//! | list threads | [`threads`] |
//! | observe when threads run, start and end | [`observe`] |
//! | learn that a process has ended | [`watch`] |
//! | find a unit or control group that runs, and its processes | [`targets`] |
//! | start a program that waits until it is covered | [`launch`] |
//! | record changes, and undo them after a crash | [`journal`] |
//! | run an application's handlers at kernel events | [`ecalls`] |
//! | load the BPF programs that clang compiled; their records | [`bpf`], [`abi`] |
//! | schedule with Q-Fabric's own scheduler in the kernel | [`ext`] |
//! | enforce budgets with high resolution | [`hrtick`] |
//! | report the abilities of this host, with reasons and next steps | [`doctor`], [`cgroup`], [`capability`] |
//! | list network interfaces | [`interfaces`] |
//! | send packets by deadline on an interface | [`net`] |
//! | run programs and threads in network namespaces that vanish with this process | [`namespace`] |
//! | exchange IP packets with the kernel as a network device (TUN) | [`tun`] |
//! | apply changes of parameters in the receiving kernel | [`kernel_path`] |
//! | read attributes for the resource monitor | [`monitor`] |
//! | read and write small files, never under a lock of the event path | `files` |
//! | clocks, locked memory | [`clock`], [`memory`] |
//! | whether `nohup` protects this process from hangups | [`signals`] |
//! | protect the memory of programs under memory pressure | [`memory_groups`] |
//! | fetch pages of another process before it needs them | [`prefault`] |
//! | find the program text of a process | [`program_text`] |
//! | helpers for tests that need the real scheduler | [`testing`] |
//!
//! Times in nanoseconds, shares in millionths of one CPU. No code in this room decides a budget. `unsafe` occurs only
//! in `sys.rs`, `fork.rs`, `observe/ring.rs`, [`launch`], [`namespace`], [`tun`], `bpf/`, `ecalls/signal.rs` and
//! `dispatcher/guardian.rs`, and each block states its reason.

pub mod abi;
pub mod books;
pub mod bpf;
pub mod capability;
pub mod capacity;
pub mod cgroup;
pub mod clock;
pub mod cpus;
pub mod deadline;
pub mod dispatcher;
pub mod doctor;
pub mod ecalls;
pub mod ext;
mod files;
mod fork;
pub mod hrtick;
pub mod interfaces;
pub mod journal;
pub mod kernel_path;
pub mod launch;
pub mod leaving;
pub mod mechanism;
pub mod memory;
pub mod memory_groups;
pub mod monitor;
pub mod namespace;
pub mod net;
pub mod observe;
pub mod power;
pub mod prefault;
pub mod program_text;
mod release;
mod rest;
pub mod rights;
pub mod sched_attr;
pub mod signals;
mod sys;
pub mod targets;
pub mod testing;
pub mod threads;
pub mod tun;
pub mod watch;

pub use deadline::Deadline;
pub use dispatcher::DispatcherMechanism;
pub use mechanism::{ApplyError, Mechanism, RaiseTarget, alternatives};
