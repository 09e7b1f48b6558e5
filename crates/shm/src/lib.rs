//! Memory that the daemon and an application share, and the sockets that carry it from one to the other.
//!
//! Problem: each side maps memory that the other side can write to, and the file behind it came through a socket.
//! Approach: the daemon creates a memfd, fixes its size for ever with seals, and passes it over a `SOCK_SEQPACKET`
//! socket. The receiver checks seals, size and contents before it maps the file. A file that cannot shrink raises
//! no `SIGBUS`, and [`qfabric_types::ring::JobRing`] consists of atomic words only, so any write of the other side
//! is defined behaviour.
//!
//! The areas of ECalls ([`qfabric_types::memory`]) are mapped in the same way: the application maps BPF array maps
//! or memfds that it received from the daemon; the daemon maps the areas that it writes itself.
//!
//! Messages of any length, in both directions, go through a [`Duplex`]: two rings, and a socket that wakes a reader
//! that sleeps.
//!
//! A forked child has a copy of all of these objects; [`Process`] tells a parent from its children.

mod duplex;
pub mod fds;
mod mapping;
mod memfd;
mod process;
mod ring;
mod segment;
mod signal;
mod socket;
mod wake;

pub use duplex::{Duplex, is_nudge, nudge};
pub use mapping::{Area, OwnedUp, Shared, SharedDown, SharedSockets, SharedUp, UpArea};
pub use process::Process;
pub use ring::SharedRing;
pub use segment::{LockedPages, LockedSegment, SharedSegment};
pub use signal::Signals;
pub use socket::{Binder, Caller};
pub use wake::Wake;
