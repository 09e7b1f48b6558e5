//! Q-channels as a state machine: one host's side of all channels, without I/O and without a clock.
//!
//! Applications, resource managers and the network call a [`Node`]'s methods with the time; what it wants done it says
//! to a [`Port`]: frames to other hosts, events to local sinks. `link` is the port over Zenoh or plain sockets, `sim`
//! the one over a made-up network.
#![forbid(unsafe_code)]

mod port;

pub use port::{Destination, Lane, Port};
