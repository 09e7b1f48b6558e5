//! METP between hosts: connections over QUIC for applications (seed 004, §5.2 and §6.4).
//!
//! [`ClientConnection`] and [`ServerConnection`] are the interface of §6.4. Behind them, one thread runs
//! [`qfabric_metp::Session`]s over carriers: QUIC connections with mutual TLS by the realm's certificates, whose
//! datagrams METP fills. This is the only room that knows quinn. The design is in docs/design/0039-carriers.md.
#![forbid(unsafe_code)]

mod carrier;
mod client_connection;
mod connection;
mod driver;
mod end;
mod error;
mod grant;
mod handover;
mod hello;
#[cfg(test)]
mod memory;
mod options;
mod plain;
#[cfg(feature = "plain-streams")]
pub mod plain_streams;
mod quic;
mod recording;
mod reserve;
mod runtime;
mod server_connection;
mod statistics;
mod streams;
#[cfg(feature = "testing")]
pub mod testing;
mod udp;

pub use carrier::{CarrierCounts, CarrierKind};
pub use client_connection::{ClientConnection, Target, resolve};
pub use connection::Connection;
pub use end::End;
pub use error::Error;
pub use grant::RateGrant;
pub use handover::{Event, Message};
pub use options::{Congestion, Engine, Options, default_service};
pub use plain::connect_plain;
pub use qfabric_metp::{DeliveryOrder, DropReason, FrameKind, Mode, Outcome, Statistics};
pub use qfabric_realm::{Access, Tls};
pub use quic::Revocation;
pub use server_connection::ServerConnection;
pub use statistics::{CarrierStatistics, ConnectionStatistics};
pub use udp::Laboratory;

/// Compiles the program in the guide.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/src/metp.md")]
    struct Metp;
}
