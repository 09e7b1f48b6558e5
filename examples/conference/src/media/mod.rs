//! Capture, codecs, sending, receiving.

mod adapt;
mod camera;
mod codec;
mod decided;
mod join;
mod meter;
mod metp;
mod picture;
mod playout;
mod presets;
mod receivers;
mod retry;
mod serve;
mod service;
mod switch;

pub use adapt::{Concession, LevelLadder};
pub use camera::{Camera, Source};
pub use codec::{CodecProblem, CodedPicture, Decoder, Encoder, available};
pub use join::{JoinOptions, JoinReport, join};
pub use meter::{Meter, Rates};
pub use metp::{Identity, MetpJoin, MetpReport, MetpServe};
pub use picture::{Picture, Scaler};
pub use presets::{Preset, PresetLadder, UnknownPreset};
pub use retry::Stop;
pub use serve::{Report, ServeOptions, request_level, serve};
pub use service::CpuTime;
pub use switch::LevelSwitch;
