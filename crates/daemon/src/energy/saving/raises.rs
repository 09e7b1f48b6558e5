//! What jobs ask for at their checkpoints: a higher clock until their ends, at most until their deadlines.
//!
//! ```text
//!  clock
//!   ▲            checkpoint: late           end, or deadline
//!   │                 ┌───────────────────────────┐   needed · left run time / left time
//!   │ ────────────────┘                           └──── needed by the reservations
//!   └──────────────────────────────────────────────────▶ time
//! ```
//! The clock is never lower than the one that the reservations need: that would spend the slack which the next delay
//! needs.

use std::collections::BTreeMap;

use qfabric_energy::USABLE;
use qfabric_types::ring::Checkpoint;
use qfabric_types::{AppId, Instant, Nanos};

/// The shortest and the longest time of a raise: no application turns knobs without pause, and one that claims a far
/// deadline does not keep the clock high for ever.
const HOLD: (Nanos, Nanos) = (Nanos::from_millis(10), Nanos::from_millis(10_000));

/// A clock that a job asked for.
#[derive(Clone, Copy, Debug)]
struct Raise {
    /// Part of the highest clock.
    part: f64,
    /// When the application began to ask for more than the reservations need.
    since: Instant,
    until: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Raises(BTreeMap<AppId, Raise>);

impl Raises {
    /// The application needs this part of the highest clock for the job of `checkpoint`, or what it needed before, if
    /// that is more. So its checkpoints turn the clocks up by a few levels, and down only when the time is over.
    pub(super) fn set(&mut self, app: AppId, part: f64, checkpoint: Checkpoint, now: Instant) {
        let (before, since) = self.0.get(&app).map_or((0.0, now), |raise| (raise.part, raise.since));
        self.0.insert(app, Raise { part: part.max(before), since, until: now + hold(checkpoint) });
    }

    /// The application's job is in time again, and may be late once more; or nothing of it is left.
    pub(super) fn end_soon(&mut self, app: AppId, checkpoint: Checkpoint, now: Instant) {
        if let Some(raise) = self.0.get_mut(&app) {
            let ends = if checkpoint.left_run == Nanos::ZERO { now.max(raise.since + HOLD.0) } else { now + HOLD.0 };
            raise.until = raise.until.min(ends);
        }
    }

    /// The application has left.
    pub(super) fn remove(&mut self, app: AppId) {
        self.0.remove(&app);
    }

    /// Ends all that are over.
    pub(super) fn end(&mut self, now: Instant) {
        self.0.retain(|_, raise| raise.until > now);
    }

    /// The first end of one.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|raise| raise.until).min()
    }

    /// The part of the highest clock from now on, if the reservations need `part`.
    pub(super) fn bound(&self, part: f64) -> f64 {
        self.0.values().fold(part, |most, raise| most.max(raise.part))
    }
}

/// Until the deadline; a job whose deadline has passed gets the time that it still needs.
fn hold(checkpoint: Checkpoint) -> Nanos {
    let Checkpoint { left_run, left_time, .. } = checkpoint;
    let time = if left_time == Nanos::ZERO { left_run } else { left_time };
    time.clamp(HOLD.0, HOLD.1)
}

/// The part of the highest clock at which the rest of the job fits, with 5 % to spare. `part`: the one at which its run
/// time was foreseen; the result is not lower.
pub(super) fn needed(part: f64, checkpoint: Checkpoint) -> f64 {
    let Checkpoint { left_run, left_time, .. } = checkpoint;
    if left_run == Nanos::ZERO {
        return part;
    }
    (part * left_run.as_f64() / left_time.as_f64().max(1.0) / USABLE).min(1.0).max(part)
}
