//! The network of Q-channels: the only room that uses a network engine.
//!
//! An [`Engine`] carries frames between hosts and reports which hosts are present. There are two, and one test suite checks
//! both: Zenoh (between machines, mutually authenticated), and plain sockets (within one machine; the fastest possible
//! transport, with which others are compared). [`Link`] runs a [`qfabric_channel::Node`] on an engine.
#![forbid(unsafe_code)]
// Some shared code is used by the engine Zenoh only.
#![cfg_attr(not(feature = "zenoh"), allow(dead_code, unused_imports))]

mod config;
mod engine;
mod error;
mod link;
mod pace;
mod plain;
mod presence;
#[cfg(feature = "zenoh")]
mod probe;
pub mod security;
#[cfg(feature = "testing")]
pub mod testing;
mod threads;
mod turn;
#[cfg(feature = "zenoh")]
mod zenoh;
#[cfg(not(feature = "zenoh"))]
#[path = "without_zenoh.rs"]
mod zenoh;

pub use config::{Address, Buffers, Config, EngineKind, Role, Scouting, Security};
pub use engine::{Counters, Engine, EngineEvent, Handler, LEASE, MAX_FRAME, MAX_HOSTS, open};
pub use error::Error;
pub use link::{Link, Listener, NodeOwner};
pub use qfabric_realm::Tls;
pub use threads::{one_receive_thread, single_receive_thread};
pub use zenoh::{Attending, attend, refused_handshakes};
