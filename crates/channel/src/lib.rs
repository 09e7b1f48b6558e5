//! Channels as a state machine: one host's side of all channels, without I/O and without a clock.
//!
//! Applications, resource managers and the network call the methods of a [`Node`] and pass the time. The node returns
//! [`Output`]s: frames for other hosts, sinks that have events to take. `link` carries the outputs out over Zenoh or
//! plain sockets, `sim` over a simulated network.
//!
//! ```text
//! submit ─> type, size, deadline ─> OUT-filters ─> Output::Send ┄┄> arrive ─> source known? in order? in time?
//!                                   (which sinks)                        ─> IN-filters ─> a queue ─> take
//! ```
//! Every node sends every other node its record: the channels that it holds, with their sources, sinks and groups. All
//! records together are the [`Directory`]. Every host stores all of it, so that no host depends on another one.
#![forbid(unsafe_code)]

mod attributes;
mod bundles;
mod change;
mod config;
mod counts;
mod delivery;
mod directory;
mod error;
mod event;
mod exit;
mod filter;
mod group;
mod ids;
mod member;
mod membership;
mod node;
mod notary;
mod notice;
mod output;
mod queue;
mod spec;
#[cfg(feature = "testing")]
pub mod testing;
mod wire;

pub use attributes::{Attributes, AttributesRef, InvalidKey, Key};
pub use config::{Action, AllowAll, Config, Engines, Policy, interpreter};
pub use counts::{FilterCounts, NodeCounts, SinkCounts, SourceCounts, SuspensionCounts};
pub use directory::{ChannelView, Directory, Held, HostRecord};
pub use error::{Error, FilterError, SubmitError};
pub use event::{Event, Sent, Submission, Taken, Target};
pub use filter::{Binding, Candidates, Choose, Direction, FilterCommand, FilterId, FilterSpec, Payer, Word};
pub use group::{QosRange, Registration};
pub use ids::{Incarnation, MemberId, RegistrationId, RequestId, SinkId, SourceId};
pub use member::{SinkInfo, SinkSpec, SourceInfo, SourceSpec};
pub use node::Node;
pub use notary::{Notary, Proof};
pub use notice::Notice;
pub use output::{Destination, DestinationRef, Frame, Lane, Output};
pub use spec::{EventType, Limits, Order, Origin, Pressure, Spec};
#[cfg(feature = "testing")]
pub use testing::conformance;
pub use wire::VERSION as PROTOCOL;
