//! METP, the multimedia-efficient transport protocol, as a state machine (seed 004, §5.2 and §6.4).
//!
//! One [`Session`] is one endpoint. It cuts messages (APDUs) into TPDUs, acknowledges groups of them, retransmits
//! within the granted rate, and drops whole messages that would arrive late. It does no I/O and reads no clock: the
//! caller passes datagrams and the time in, and polls [`Output`]s (docs/design/0031-outputs.md).
//!
//! Units: times in nanoseconds, sizes in bytes, rates in bits per second. The design is in docs/design/0038-metp.md.
#![forbid(unsafe_code)]

mod bitmap;
mod blocks;
mod bucket;
mod carriers;
mod clock;
mod config;
mod message;
mod output;
mod receive;
mod send;
mod session;
mod statistics;
#[cfg(feature = "testing")]
pub mod testing;
mod timing;
mod wire;

pub use carriers::{CarrierId, CarrierInfo, CarrierRefusal, CarrierRoles};
pub use config::{Config, DeliveryOrder, InvalidConfig};
pub use message::{FrameKind, MessageNumber, Mode, Outgoing, SendRefusal};
pub use output::{DropReason, EndReason, Outcome, Output, Received};
pub use receive::Holes;
pub use session::Session;
pub use statistics::{DelaySummary, Statistics};
pub use wire::{HEADER_BYTES, TPDU_SIZES};
