//! The suite over a made-up network: quiet, lossy and disorderly.

use qfabric_channel::testing::{Memory, Settings};

qfabric_channel::conformance_suite!(Memory::new(Settings::default()));
