//! Helpers of tests that need the real scheduler.

use std::fs::File;

/// Waits until no other test uses the real scheduler; free again when dropped.
#[must_use]
pub fn live_lock() -> File {
    use rustix::fs::{FlockOperation, flock};
    let dir = ["/run/lock", "/tmp"].into_iter().find(|d| std::path::Path::new(d).is_dir()).unwrap_or(".");
    let path = format!("{dir}/qfabric-live.lock");
    let file = File::options().create(true).append(true).open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    flock(&file, FlockOperation::LockExclusive).unwrap_or_else(|e| panic!("{path}: {e}"));
    file
}
