//! The release of frames at the rate of the contract.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest sleep without a look at Ctrl-C.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// Releases one frame in every period, from the first call on.
pub(super) struct Pace {
    period: Option<Duration>,
    next: Instant,
}

impl Pace {
    /// `None`: as fast as the connection takes them.
    pub(super) fn new(period: Option<Duration>) -> Pace {
        Pace { period, next: Instant::now() }
    }

    /// Waits until the next frame is released. Returns false if `stop` was set.
    pub(super) fn wait(&mut self, stop: &AtomicBool) -> bool {
        if let Some(period) = self.period {
            while !stop.load(Ordering::Relaxed) {
                let left = self.next.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                std::thread::sleep(left.min(SIGNAL_CHECK));
            }
            self.next += period;
        }
        !stop.load(Ordering::Relaxed)
    }
}
