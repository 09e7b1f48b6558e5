//! Who submits without end, rests now and then.
//!
//! A thread that submits again at once is always ready to run. Where there are fewer processors than threads that want
//! one, it keeps a processor for milliseconds, and those that share it wait: the network's thread, and whoever has a
//! control event and wakes the flooding thread by giving the lock back to it. One that sleeps shortly gives the processor
//! up by itself before; then *more* of its events arrive, as fewer of them find no room. Not `yield`: a thread under
//! SCHED_DEADLINE would end its period by that.

use std::time::Duration;

use qfabric_types::{Instant, Nanos};

/// As long as somebody may go on, without rest. What comes in a shorter burst is never held up.
const BUSY: Nanos = Nanos::from_micros(100);
/// Whoever is away for so long has rested.
const PAUSE: Nanos = Nanos::from_micros(20);
/// What is asked of the kernel; it gives about 60 µs, to a thread with a real-time policy what was asked for.
pub(crate) const REST: Duration = Duration::from_micros(10);

/// Since when there was no pause.
#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    last: Instant,
}

impl Pace {
    pub fn new(now: Instant) -> Pace {
        Pace { since: now, last: now }
    }

    /// Somebody had the lock from `begin` to `end`. True: that is enough for a while.
    pub fn is_enough(&mut self, begin: Instant, end: Instant) -> bool {
        if begin.since(self.last) >= PAUSE {
            self.since = begin;
        }
        self.last = end;
        end.since(self.since) >= BUSY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that take 5 µs, with so long between them; those after which a rest is due.
    fn rests(between_us: u64) -> Vec<usize> {
        let (mut pace, mut now) = (Pace::new(Instant::ZERO), Instant::ZERO);
        let due = (0..60).filter(|_| {
            let begin = now + Nanos::from_micros(between_us);
            now = begin + Nanos::from_micros(5);
            let enough = pace.is_enough(begin, now);
            if enough {
                now = now + Nanos::from_micros(60);
            }
            enough
        });
        due.collect()
    }

    #[test]
    fn who_never_pauses_rests_each_100_us_and_who_pauses_never() {
        assert_eq!(rests(0), [19, 39, 59]);
        assert!(rests(20).is_empty());
    }
}
