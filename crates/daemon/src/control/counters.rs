//! What the control thread counts of itself: plain numbers, copied out on request.

use qfabric_host::{HostEvent, Outcome};
use qfabric_types::Nanos;

/// Upper ends of the handling-time buckets, in ns: 1 µs to 16 ms, times four each.
pub(crate) const HANDLING_BUCKETS_NS: [u64; 8] =
    [1_000, 4_000, 16_000, 64_000, 256_000, 1_024_000, 4_096_000, 16_384_000];

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    /// Times the loop woke up.
    pub wakeups: u64,
    /// Of these, at which the host had something due.
    pub ticks: u64,
    /// Of these, at which a promised look at a ring was due.
    pub looks_due: u64,
    /// Requests taken from the queue.
    pub requests: u64,
    /// Settings carried out.
    pub applied: u64,
    /// Settings the kernel had no room for at the moment.
    pub busy: u64,
    /// Of those carried out, such that took from a thread while it slept.
    pub given_back: u64,
    /// Attempts at that which found the thread awake, or in debt.
    pub awake: u64,
    /// Settings for threads that were gone.
    pub gone: u64,
    /// Settings refused for good.
    pub denied: u64,
    /// Threads beyond the bound of their application.
    pub threads_left_out: u64,
    /// Births beyond the rate at which threads are attached, attached later.
    pub births_deferred: u64,
    /// Births that were never attached.
    pub births_dropped: u64,
    /// Context switch records handed out by the observer.
    pub observations: u64,
    /// Context switch records the kernel dropped.
    pub observations_lost: u64,
    /// Looks at a ring that ended because of the bound, not because the ring was empty.
    pub looks_cut_short: u64,
    /// Drains of the host that ended because of the bound.
    pub outputs_left: u64,
    /// Inputs the host could make no sense of.
    pub inputs_ignored: u64,
    /// Times the kernel ended the mechanism.
    pub ejections: u64,
    /// Jobs that used up their budget and got more at once.
    pub rescues: u64,
    /// Events that favoured their sink's server, and such that asked for it in vain.
    pub favoured: u64,
    /// See `favoured`.
    pub not_favoured: u64,
    /// Threads of the service itself that could not be put into its server.
    pub own_threads_left_out: u64,
    /// What the kernel has booked for no thread, at the last look, in units of 2⁻²⁰ CPU; negative: it has booked too
    /// little.
    pub booked_for_nobody: i64,
    /// How long each wake-up took to handle.
    pub handling: Handling,
}

/// A histogram of times; the last bucket is open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Handling {
    pub buckets: [u64; HANDLING_BUCKETS_NS.len() + 1],
    pub sum: Nanos,
}

impl Handling {
    /// Counts one wake-up.
    pub fn count(&mut self, took: Nanos) {
        let bucket = HANDLING_BUCKETS_NS.partition_point(|end| *end < took.get());
        self.buckets[bucket] += 1;
        self.sum += took;
    }
}

impl Counters {
    /// Counts what became of a setting.
    pub fn count(&mut self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Done => &mut self.applied,
            Outcome::Busy => &mut self.busy,
            Outcome::Awake => &mut self.awake,
            Outcome::Gone => &mut self.gone,
            Outcome::Denied(_) => &mut self.denied,
        };
        *counter += 1;
    }

    /// Counts what the host says.
    pub fn hear(&mut self, event: HostEvent) {
        match event {
            HostEvent::TooManyThreads { .. } => self.threads_left_out += 1,
            HostEvent::Rescue { .. } => self.rescues += 1,
            HostEvent::Ignored { count } => self.inputs_ignored = count,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_bucket_that_ends_at_or_after_it() {
        let mut handling = Handling::default();
        for ns in [0, 1_000, 1_001, 16_384_000, 16_384_001] {
            handling.count(Nanos::new(ns));
        }
        assert_eq!(handling.buckets, [2, 1, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(handling.sum, Nanos::new(2 * 16_384_000 + 2_002));
    }
}
