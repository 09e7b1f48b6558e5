//! Memory that the daemon and an application share, and how it gets from one to the other.
//!
//! Problem: each side maps memory the other can write to, and the file behind it came through a socket.
//! Approach: the daemon makes a memfd, fixes its size for ever with seals, and passes it over a
//! `SOCK_SEQPACKET` socket. Whoever maps one checks seals, size and contents first: a file that cannot shrink
//! can raise no `SIGBUS`, and [`qfabric_types::ring::JobRing`] has only atomic words, so scribbling by the
//! other side is defined behaviour.
//!
//! The areas of ECalls ([`qfabric_types::memory`]) are mapped in the same way: by the application from BPF array
//! maps or memfds that the daemon hands out, by the daemon where it writes itself.
//!
//! Messages of any length, in both directions, go through a [`Duplex`]: two rings, and a socket that wakes who sleeps.
//!
//! All of it is copied into the children of an application; [`Process`] tells them from it.

mod duplex;
pub mod fds;
mod mapping;
mod memfd;
mod process;
mod ring;
mod signal;
mod socket;
mod wake;

pub use duplex::{Duplex, is_nudge, nudge};
pub use mapping::{Area, OwnedUp, Shared, SharedDown, SharedSockets, SharedUp, UpArea};
pub use process::Process;
pub use ring::SharedRing;
pub use signal::Signals;
pub use socket::Binder;
pub use wake::Wake;
