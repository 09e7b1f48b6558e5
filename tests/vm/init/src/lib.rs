//! What the harness (`xtask vm`) and the first process of the test machine say to each other: the errand that goes
//! in with the image, and the frames that come back over a virtio serial port.
//!
//! Kernel messages go to the console, a port of their own: nothing mixes into the frames.
#![forbid(unsafe_code)]

mod errand;
mod frame;

pub use errand::{Command, Errand, ErrandError};
pub use frame::{Frame, FrameError, Stream};

/// Where the errand lies in the image.
pub const ERRAND: &str = "/vm/errand";

/// Files that commands leave here come back to the host.
pub const OUT: &str = "/out";

/// The name of the port that carries frames: `/dev/virtio-ports/` does not exist without udev, sysfs has the name.
pub const PORT: &str = "qfabric";
