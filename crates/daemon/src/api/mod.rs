//! The local API: HTTP on `qfabric.sock` and rings on `ring.sock`, both served by one thread. The dispatcher serves
//! `ecalls.sock`, the channels' thread `channels.sock`.
//!
//! This module makes no decisions: it reads a request within bounds, looks up the credentials, and passes the
//! request to the control thread.

mod accept;
pub(crate) mod answers;
pub(crate) mod ecalls;
mod leases;
mod listening;
pub(crate) mod routes;
mod server;
mod share;
mod sockets;
mod tcp;

pub(crate) use accept::{Caller, Failures, Place, Places, accept_each, refused as refused_connections};
pub(crate) use leases::serve_rings;
pub(crate) use listening::{RETRY, failed as failed_to_listen, listen};
pub(crate) use routes::{Context, metrics_router, router};
pub(crate) use server::{bounded, serve_http};
pub(crate) use share::PER_SECOND as ANSWER_BYTES_PER_SECOND;
pub(crate) use sockets::{Sockets, bind, permit};
pub(crate) use tcp::{MetricsPlace, MetricsSocket, network_of, serve_metrics};
