//! Simulates hundreds of hosts on a network from one seed. Nodes ([`qfabric_channel::Node`]) and managers
//! ([`qfabric_host::manager::Member`]) are the real ones; the network, the clocks and the applications are models.
//!
//! ```text
//!   App ──> Member (Node + Manager) ──frames──> uplink: rate, queue ──> path: delay, jitter, loss, cuts ──> Member ──> App
//! ```
//! Frames of one lane between two hosts arrive in order, as over one connection. At the uplink, control frames are
//! sent before data frames. Control frames are not lost unless the path is cut. Data beyond the uplink's queue is
//! dropped. The network decides presence: a killed host counts as gone after [`Settings::closed`], a silent or
//! cut-off host after [`Settings::lease`]. Every host has its own clock, with an offset and a drift. Events
//! planned for the same nanosecond happen in the order in which they were planned.

mod app;
mod clock;
pub mod experiments;
mod network;
mod plot;
mod world;

pub use app::{App, HostContext, Idle, PendingOutputs, ReceivedEvent};
pub use network::Settings;
pub use plot::{Chart, svg};
pub use world::{Counts, Fabric, HostId};
