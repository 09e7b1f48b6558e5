//! A simulated link and a pair of sessions over it, in virtual time and from one seed. Tests and benchmarks use them.

mod inspect;
mod link;
mod pair;
mod video;

pub use inspect::{SentReport, SentTpdu, report, tpdu};
pub use link::{Link, LinkSettings, Loss};
pub use pair::{Arrival, End, Pair, Side};
pub use video::{VideoFrame, video};
