//! The seeds' experiments over the made-up network: what came out, as numbers and as curves.

pub mod admission;
pub mod balance;
pub mod calls;
pub mod crowd;
pub mod cut;
pub mod film;
pub mod roles;
pub mod spread;
pub mod sync;
pub mod tree;

use qfabric_types::channel::{ChannelId, Name, Plane};

/// A curve: a name, and points of seconds and values.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Curve {
    /// What it shows.
    pub name: String,
    /// Time in seconds (or whatever the axis says) and value.
    pub points: Vec<(f64, f64)>,
}

fn data(name: &str) -> ChannelId {
    ChannelId { plane: Plane::Data, name: name.parse().expect("a channel's name") }
}

fn quality(channel: &ChannelId) -> ChannelId {
    ChannelId { plane: Plane::Quality, name: channel.name.clone() }
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}
