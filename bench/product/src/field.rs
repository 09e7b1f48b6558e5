//! Rivals; uses the code of `crates/link/examples/field`.
#![allow(dead_code, reason = "not all of it is used here")]

#[path = "../../../crates/link/examples/field/bare.rs"]
pub(crate) mod bare;
#[path = "../../../crates/link/examples/field/foreign.rs"]
pub(crate) mod foreign;
#[path = "../../../crates/link/examples/field/nats.rs"]
pub(crate) mod nats;
#[path = "../../../crates/link/examples/field/peer.rs"]
mod peer;

pub(crate) use peer::{Each, Peer, Publish, cpu_us, until};
