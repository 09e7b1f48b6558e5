//! Rivals; uses the code of `crates/link/examples/field`.
#![allow(dead_code, reason = "not all of it is used here")]

#[path = "../../../crates/link/examples/field/bare.rs"]
pub mod bare;
#[path = "../../../crates/link/examples/field/foreign.rs"]
pub mod foreign;
#[path = "../../../crates/link/examples/field/nats.rs"]
pub mod nats;
#[path = "../../../crates/link/examples/field/peer.rs"]
mod peer;

pub use peer::{Each, Peer, Publish, cpu_us, until};
