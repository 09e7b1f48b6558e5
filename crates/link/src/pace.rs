//! Makes a thread that submits without a pause rest from time to time.
//!
//! Such a thread is always ready to run. If there are fewer processors than ready threads, it keeps a processor for
//! milliseconds. Threads that share the processor wait: the network's thread, and a thread that has a control event and
//! wakes the flooding thread by releasing the lock to it. A thread that sleeps briefly releases the processor earlier, and
//! the network's thread empties the queues in this time. So fewer events of the thread are dropped for lack of room, and
//! *more* of them arrive. `yield` is not used, because it ends the period of a
//! thread under SCHED_DEADLINE.

use std::time::Duration;

use qfabric_types::{Instant, Nanos};

/// The longest time without a rest; a shorter burst is never delayed.
const BUSY: Nanos = Nanos::from_micros(100);
/// An idle gap of this length counts as a rest.
const PAUSE: Nanos = Nanos::from_micros(20);
/// The requested sleep. The kernel sleeps about 60 µs, for a thread with a real-time policy as requested.
pub(crate) const REST: Duration = Duration::from_micros(10);

/// The start of the time without a pause.
#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    last: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Pace {
        Pace { since: now, last: now }
    }

    /// A thread had the lock from `begin` to `end`. Returns whether it has to rest now.
    pub(crate) fn is_enough(&mut self, begin: Instant, end: Instant) -> bool {
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

    /// Calls that take 5 µs with this pause between them; returns the calls after which a rest is due.
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
