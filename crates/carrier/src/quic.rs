//! QUIC: the only code that knows quinn.

mod bounds;
mod config;
mod connect;
mod datagrams;
mod failure;
mod marking;
mod rate;
mod serve;
mod watch;

pub(crate) use config::open_streams;
pub(crate) use connect::connect;
pub(crate) use datagrams::QuicDatagrams;
pub(crate) use rate::Governor;
pub(crate) use serve::{Arrival, Door};
pub use watch::Revocation;

use std::sync::Arc;

use qfabric_types::channel::Name;

/// An authenticated connection.
#[derive(Clone)]
pub(crate) struct Authenticated {
    pub(crate) connection: quinn::Connection,
    /// Keeps the socket of the side that connected, and changes its address.
    pub(crate) endpoint: quinn::Endpoint,
    pub(crate) governor: Arc<Governor>,
    /// The name in the other side's certificate.
    pub(crate) host: Name,
}
