//! A video conference over Q-channels: the example application that managers adapt while it runs.
//!
//! A server captures pictures, encodes them at its [`Level`] and submits them as events. Receivers decode and show
//! them, and report rates and jitter on a second channel once per second. The level (codec, quality, size) changes
//! between two frames: by a policy of the host's daemon, by the ladder of the server ([`LevelLadder`]), by one call
//! ([`LevelSwitch::set`]), by an event of that channel, or by a line on standard input.
//!
//! ```text
//! camera ─ scale ─ encode ─ submit ══ channel NAME ══ assemble ─ queue ─ decode ─ show
//!             ▲ level                                                              │ rates, jitter, missing codec
//!             └──────────────────── channel NAME.talk ◄────────────────────────────┘
//! ```
//!
//! With [`MetpServe`] and [`MetpJoin`], pictures travel over METP connections in the place of the channel NAME.
//!
//! Rates are in thousandths of a frame per second, times in nanoseconds of `CLOCK_MONOTONIC`. Without a ladder the crate
//! decides nothing about levels. Without its feature `media`, only the formats of the events are built.
//!
//! Source: 000 §5.2, with the tool *vic*. Departure: H.264 beside H.261, and any size up to 1920x1080.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod assembler;
mod level;
pub mod wire;

pub use assembler::{Assembler, Frame};
pub use level::{Codec, InvalidLevel, Level, Size};

#[cfg(feature = "media")]
mod media;
#[cfg(feature = "media")]
pub use media::*;
