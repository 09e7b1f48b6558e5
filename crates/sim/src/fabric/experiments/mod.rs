//! The experiments of the papers on the simulated network, with their results as numbers and as curves.

pub mod admission;
pub mod balance;
pub mod calls;
pub mod crowd;
pub mod cut;
pub mod film;
pub mod laboratory;
pub mod roles;
pub mod spread;
pub mod sync;
pub mod tree;

use qfabric_types::channel::{ChannelId, Name, Plane};

/// A named curve.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Curve {
    pub name: String,
    /// Time in seconds, or the quantity of the horizontal axis, and value.
    pub points: Vec<(f64, f64)>,
}

fn data(name: &str) -> ChannelId {
    ChannelId { plane: Plane::Data, name: name.parse().expect("a valid channel name") }
}

fn quality(channel: &ChannelId) -> ChannelId {
    ChannelId { plane: Plane::Quality, name: channel.name.clone() }
}

fn name(text: &str) -> Name {
    text.parse().expect("a valid name")
}
