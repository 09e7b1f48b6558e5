//! Hundreds of hosts on a made-up network, from one seed: real [`qfabric_channel::Node`]s and real managers
//! ([`qfabric_host::manager::Member`]), only the network, the clocks and the applications are models.
//!
//! ```text
//!   App ──> Member (Node + Manager) ──frames──> uplink: rate, queue ──> way: delay, jitter, loss, cuts ──> Member ──> App
//! ```
//! Frames of one lane between two hosts arrive in their order, as over one connection; control frames go before data at
//! the uplink and are not lost on a whole way; data beyond the uplink's queue is dropped. Presence is the network's: a
//! killed host is missed after [`Settings::closed`], a silent or cut off one after [`Settings::lease`]. Every host has
//! its own clock, with an offset and a drift. Whatever happens in one nanosecond happens in the order it was planned.

mod app;
mod clock;
pub mod experiments;
mod network;
mod plot;
mod world;

pub use app::{App, Arrived, Here, Idle, Todo};
pub use network::Settings;
pub use plot::{Chart, svg};
pub use world::{Counts, Fabric, HostId};
