//! The only room that knows it is on Linux: it carries [`qfabric_types::Setting`]s out on real threads and
//! brings back what those threads did.
//!
//! | question | module |
//! |---|---|
//! | give this thread this reservation, put it back | [`deadline`] over [`sched_attr`] |
//! | take a thread out of its reservation without a trace | [`leaving`] |
//! | how much may be promised here | [`capacity`] |
//! | what the kernel has booked, and for whom | [`books`] |
//! | which threads are there | [`threads`] |
//! | what did they run, who was born, who died | [`observe`] |
//! | is that process over | [`watch`] |
//! | start a program that waits until it is covered | [`launch`] |
//! | what was changed, and how is it put back after a crash | [`journal`] |
//! | run an application's code where kernel events happen | [`ecalls`] |
//! | load the kernel's side, which clang has compiled | [`bpf`], its records [`abi`] |
//! | schedule by an own scheduler in the kernel | [`ext`] |
//! | are budgets enforced finely | [`hrtick`] |
//! | what does this host offer, why not, what to do | [`doctor`], [`cgroup`], [`capability`] |
//! | which network interfaces are there | [`interfaces`] |
//! | packets with deadlines, on an interface | [`net`] |
//! | how busy, how full, how hot: numbers for the resource monitor | [`monitor`] |
//! | small files, never under a lock of the event path | `files` |
//! | clocks, locked memory | [`clock`], [`memory`] |
//! | helpers of tests that need the real scheduler | [`testing`] |
//!
//! Times in nanoseconds, shares in millionths of one CPU. Nothing here decides a budget. `unsafe` lives in
//! `sys.rs`, `observe/ring.rs`, [`launch`], `bpf/` and `ecalls/signal.rs` alone, each block with
//! its reason.

pub mod abi;
pub mod books;
pub mod bpf;
pub mod capability;
pub mod capacity;
pub mod cgroup;
pub mod clock;
pub mod cpus;
pub mod deadline;
pub mod doctor;
pub mod ecalls;
pub mod ext;
mod files;
pub mod hrtick;
pub mod interfaces;
pub mod journal;
pub mod launch;
pub mod leaving;
pub mod mechanism;
pub mod memory;
pub mod monitor;
pub mod net;
pub mod observe;
mod release;
mod rest;
pub mod rights;
pub mod sched_attr;
mod sys;
pub mod testing;
pub mod threads;
pub mod watch;

pub use deadline::Deadline;
pub use mechanism::{ApplyError, Mechanism, RaiseTarget};
