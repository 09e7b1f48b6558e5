//! The protocol between the harness (`xtask vm`) and the first process of the test machine: the boot script, which is
//! part of the image, and the frames, which come back over a virtio serial port.
//!
//! Kernel messages go to the console, which is a separate port, so they do not mix with the frames.
#![forbid(unsafe_code)]

mod frame;
mod script;

pub use frame::{Frame, FrameError, Stream};
pub use script::{BootScript, BootScriptError, Command};

/// Path of the boot script in the image.
pub const BOOT_SCRIPT: &str = "/vm/boot-script";

/// Folder whose files are sent to the host after the commands.
pub const OUT: &str = "/out";

/// Name of the port that carries frames. sysfs has this name; `/dev/virtio-ports/` does not exist without udev.
pub const PORT: &str = "qfabric";
