//! Translates the quality that an application asks for into amounts of resources, and amounts back into quality
//! (QualMan §2.1 Table 1, §2.3, §3.4, §4, §5.1, §6.3).
//!
//! ```text
//!   stream.toml --parse--> Stream --translate--> Translation { steps, resources by host }
//!                            |                        |
//!                            `------- offer <---------'  granted amounts: the best quality that they carry
//! ```
//!
//! Units: times in nanoseconds, sizes in bytes, rates in millionths of a frame per second. All calculations are exact
//! integer arithmetic; an amount that is asked for is rounded up, a quality that is offered is rounded down. The room
//! does no I/O; the caller measures what the formulas need (computation times, packet delay).
#![forbid(unsafe_code)]

mod flow;
mod inverse;
mod memory;
mod network;
mod offer;
mod parse;
mod pattern;
mod rate;
mod region;
mod step;
mod steps;
mod stream;
mod suggest;
mod translate;

pub use inverse::{
    computation_within, degradation_of, delay_of, jitter_within, largest_group, largest_sample, rate_of_packets,
    rate_of_period, rate_within, samples_in_memory,
};
pub use offer::{Offer, offer};
pub use parse::{InvalidStream, MAX_BYTES, Mistake};
pub use pattern::{FrameKind, GopPattern};
pub use rate::{Fraction, FrameRate, Range};
pub use region::{Bound, Parameter, Region, Verdict};
pub use step::{Explanation, HostResource, Input, Step};
pub use stream::{
    Computation, End, Host, Level, Medium, Network, Peer, Quality, Reliability, Sound, Stream, TransportCost, Video,
};
pub use translate::{Profiles, Translation, Untranslatable, explain, resources_by_level, translate};
