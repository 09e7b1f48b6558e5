//! The event areas. `Geometry` and `Layout` share no words, so those of `types` are used.

#[path = "../../../crates/types/src/memory/up.rs"]
mod up;
#[path = "../../../crates/types/src/memory/writer.rs"]
mod writer;

pub use qfabric_types::memory::{Geometry, HEADER_BYTES, InvalidGeometry, Layout, MAGIC};
pub use up::{Stamp, Up, UpHeader, UpParts, UpStorage};
pub use writer::UpWriter;
