//! A flag that signals set, for commands that run until Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::Failure;

/// Returns a flag that Ctrl-C (SIGINT) and SIGTERM set.
pub(crate) fn interrupted() -> Result<Arc<AtomicBool>, Failure> {
    interrupted_by(&[SIGINT, SIGTERM])
}

/// Like [`interrupted`]; a closed terminal (SIGHUP) sets the flag, too, unless this process ignores it. For commands that put
/// something back at their end.
pub(crate) fn interrupted_or_hung_up() -> Result<Arc<AtomicBool>, Failure> {
    interrupted_by(&qfabric_demo::ending_signals())
}

/// Returns a flag that the given signals set.
fn interrupted_by(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, stop.clone())?;
    }
    Ok(stop)
}
