//! When frames are due.

use qfabric_linux::clock;
use qfabric_types::{Instant, Nanos};
use rustix::thread::Timespec;
use rustix::time::ClockId;

/// What both ends know of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// T: a frame in each.
    pub period: Nanos,
    /// Θ: how long after the period of its computation that of its sending begins.
    pub phase: Nanos,
    /// Bytes of a frame, without headers.
    pub bytes: u32,
    /// How many frames.
    pub frames: u32,
}

impl Shape {
    /// Θ + T: no packet is older when it leaves.
    pub fn bound(&self) -> Nanos {
        self.phase + self.period
    }

    /// When the computation of a frame may begin.
    pub fn release(&self, start: Instant, frame: u32) -> Instant {
        start + self.period.saturating_mul(u64::from(frame))
    }
}

/// Sleeps until a moment of CLOCK_MONOTONIC; returns at once where it has passed.
pub fn sleep_until(moment: Instant) {
    if clock::now() >= moment {
        return;
    }
    let at = moment.get();
    let request = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as _ };
    // Interrupted by a signal: the moment is the same.
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request).is_err() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_at_most_phase_and_period_old() {
        let ms = Nanos::from_millis;
        let shape = Shape { period: ms(30), phase: ms(15), bytes: 1, frames: 1 };
        assert_eq!(shape.bound(), ms(45), "the thesis' example");
        assert_eq!(shape.release(Instant::new(5), 2), Instant::new(60_000_005));
    }
}
