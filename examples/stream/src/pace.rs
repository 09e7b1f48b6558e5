//! The times at which frames are due.

use qfabric_linux::clock;
use qfabric_types::{Instant, Nanos};
use rustix::thread::Timespec;
use rustix::time::ClockId;

/// The properties of a stream that sender and receiver share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// T: the time from one frame to the next.
    pub period: Nanos,
    /// Θ: the time by which the packet periods follow the CPU periods.
    pub phase: Nanos,
    /// Size of a frame in bytes, without headers.
    pub bytes: u32,
    /// Number of frames.
    pub frames: u32,
}

impl Shape {
    /// Θ + T: the largest age of a packet when it leaves.
    pub fn bound(&self) -> Nanos {
        self.phase + self.period
    }

    /// The time at which the computation of a frame may begin.
    pub fn release(&self, start: Instant, frame: u32) -> Instant {
        start + self.period.saturating_mul(u64::from(frame))
    }
}

/// Sleeps until a time of CLOCK_MONOTONIC. Returns immediately if it has passed.
pub fn sleep_until(moment: Instant) {
    if clock::now() >= moment {
        return;
    }
    let at = moment.get();
    let request = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as _ };
    // A signal interrupts the sleep; because the time is absolute, the thread just sleeps again.
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request).is_err() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_at_most_phase_and_period_old() {
        let ms = Nanos::from_millis;
        let shape = Shape { period: ms(30), phase: ms(15), bytes: 1, frames: 1 };
        assert_eq!(shape.bound(), ms(45), "the example in the thesis");
        assert_eq!(shape.release(Instant::new(5), 2), Instant::new(60_000_005));
    }
}
