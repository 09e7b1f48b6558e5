//! Ending on request: a flag that signals set.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::Failure;

/// Set at Ctrl-C and SIGTERM.
pub fn interrupted() -> Result<Arc<AtomicBool>, Failure> {
    interrupted_by(&[SIGINT, SIGTERM])
}

/// Set at these signals.
pub fn interrupted_by(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, stop.clone())?;
    }
    Ok(stop)
}
