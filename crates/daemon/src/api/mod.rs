//! The local API: HTTP on `qfabric.sock`, rings on `ring.sock`, one thread for both (`ecalls.sock` is the
//! dispatcher's, `channels.sock` the channels').
//!
//! Nothing here decides: a request is bounded, read, its credentials looked up, and handed to the control
//! thread.

mod accept;
pub(crate) mod answers;
pub(crate) mod ecalls;
mod leases;
pub(crate) mod routes;
mod server;
mod sockets;

pub(crate) use accept::refused as refused_connections;
pub(crate) use leases::serve_rings;
pub(crate) use routes::router;
pub(crate) use server::serve_http;
pub(crate) use sockets::{Sockets, bind};
