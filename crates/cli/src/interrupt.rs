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

/// Like [`interrupted`]; a second signal ends the process at once. For commands that a terminal may block, such as one
/// behind a connection that stands still.
pub(crate) fn interrupted_or_ended() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Actions run in the order of their registration: the first signal finds the flag unset here.
        signal_hook::flag::register_conditional_default(signal, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// Returns a flag that the given signals set.
fn interrupted_by(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, stop.clone())?;
    }
    Ok(stop)
}
