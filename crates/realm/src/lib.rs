//! A realm: the hosts that trust each other. Its authority and certificates, and the access list with the rights of
//! each host.
//!
//! The rooms that make connections (`link`, `carrier`) authenticate with a [`Tls`]. This room makes no connection.
#![forbid(unsafe_code)]

mod access;
#[cfg(feature = "certificates")]
mod authority;
#[cfg(feature = "certificates")]
mod check;
mod enlist;
mod error;
#[cfg(feature = "certificates")]
mod handshake;
#[cfg(feature = "certificates")]
mod names;
mod tls;
#[cfg(not(feature = "certificates"))]
mod without_certificates;

pub use access::{Access, MAX_HOSTS, Right, Rule};
#[cfg(feature = "certificates")]
pub use authority::{Issued, MAX_DAYS, init_ca, issue};
#[cfg(feature = "certificates")]
pub use check::check_certificate;
pub use enlist::{enlist, hand_out};
pub use error::Error;
#[cfg(feature = "certificates")]
pub use handshake::{client_config, explain, explain_alert, server_config};
#[cfg(feature = "certificates")]
pub use names::{certificates, host_of};
pub use tls::Tls;
#[cfg(not(feature = "certificates"))]
pub use without_certificates::{Issued, MAX_DAYS, check_certificate, init_ca, issue};
