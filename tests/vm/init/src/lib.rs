//! The protocol between the harness (`xtask vm`) and the first process of the test machine: the errand, which is
//! part of the image, and the frames, which come back over a virtio serial port.
//!
//! Kernel messages go to the console, which is a separate port, so they do not mix with the frames.
#![forbid(unsafe_code)]

mod errand;
mod frame;

pub use errand::{Command, Errand, ErrandError};
pub use frame::{Frame, FrameError, Stream};

/// Path of the errand in the image.
pub const ERRAND: &str = "/vm/errand";

/// Folder whose files are sent to the host after the commands.
pub const OUT: &str = "/out";

/// Name of the port that carries frames. sysfs has this name; `/dev/virtio-ports/` does not exist without udev.
pub const PORT: &str = "qfabric";
