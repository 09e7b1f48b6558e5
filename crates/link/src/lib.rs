//! Q-channels between hosts: the only room that knows the network engine.
//!
//! An [`Engine`] brings frames from host to host and says which hosts are there. There are two, and one suite holds
//! both to the same promises: Zenoh (between machines, mutually authenticated), and plain sockets (within one machine;
//! the floor of every measurement). [`Link`] puts a [`qfabric_channel::Node`] on top of one.
#![forbid(unsafe_code)]
// Some of what both engines may use, only Zenoh does.
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

pub use config::{Address, Config, EngineKind, Role, Scouting, Security, Tls};
pub use engine::{Counters, Engine, EngineEvent, Handler, LEASE, MAX_FRAME, MAX_HOSTS, open};
pub use error::Error;
pub use link::{Inside, Link, Listener};
pub use threads::{one_receive_thread, single_receive_thread};
pub use zenoh::{Attending, attend};
