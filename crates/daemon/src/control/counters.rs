//! Counters of the control thread: plain numbers, copied on request.

use qfabric_host::{HostEvent, Outcome};
use qfabric_types::Nanos;

/// Upper ends of the handling-time buckets, in ns: 1 µs to 16 ms, each four times the one before.
pub(crate) const HANDLING_BUCKETS_NS: [u64; 8] =
    [1_000, 4_000, 16_000, 64_000, 256_000, 1_024_000, 4_096_000, 16_384_000];

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    /// Wake-ups of the loop.
    pub wakeups: u64,
    /// Wake-ups at which the host's timer was due.
    pub ticks: u64,
    /// Wake-ups at which a promised look at a ring was due.
    pub looks_due: u64,
    /// Requests taken from the queue.
    pub requests: u64,
    /// Settings that the kernel carried out.
    pub applied: u64,
    /// Settings that the kernel had no room for at that time.
    pub busy: u64,
    /// Settings carried out that decreased the reservation of a sleeping thread.
    pub given_back: u64,
    /// Attempts to decrease a reservation that found the thread awake or in debt.
    pub awake: u64,
    /// Settings for threads that had ended.
    pub gone: u64,
    /// Reservations that the kernel accepted for threads that were gone immediately afterwards. It may keep some of them
    /// booked with no owner.
    pub given_to_the_gone: u64,
    /// Settings that the kernel refused permanently.
    pub denied: u64,
    /// Threads beyond the thread limit of their application.
    pub threads_left_out: u64,
    /// New threads that were attached later, because of the rate limit.
    pub births_deferred: u64,
    /// New threads that were never attached, because of the rate limit.
    pub births_dropped: u64,
    /// Context switch records that the observer delivered.
    pub observations: u64,
    /// Context switch records the kernel dropped.
    pub observations_lost: u64,
    /// Looks at a ring that ended at their bound, not at an empty ring.
    pub looks_cut_short: u64,
    /// Drains of the host's outputs that ended at their bound.
    pub outputs_left: u64,
    /// Inputs that the host ignored because they were inconsistent.
    pub inputs_ignored: u64,
    /// Times that the kernel ejected the mechanism.
    pub ejections: u64,
    /// Jobs that used up their budget and received a larger one while they ran.
    pub rescues: u64,
    /// Events that favoured the server of their sink.
    pub favoured: u64,
    /// Events that requested favour without effect: no application of the process has a server that can be favoured.
    pub not_favoured: u64,
    /// Failed attempts to put a thread of the service into its server.
    pub own_threads_left_out: u64,
    /// Bandwidth that the kernel has booked for no thread, at the last measurement, in units of 2⁻²⁰ CPU. Negative:
    /// the kernel has booked too little.
    pub booked_for_nobody: i64,
    /// Handling time of each wake-up.
    pub handling: Handling,
}

/// A histogram of times; the last bucket has no upper end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Handling {
    pub buckets: [u64; HANDLING_BUCKETS_NS.len() + 1],
    pub sum: Nanos,
}

impl Handling {
    /// Adds the handling time of one wake-up.
    pub(crate) fn count(&mut self, took: Nanos) {
        let bucket = HANDLING_BUCKETS_NS.partition_point(|end| *end < took.get());
        self.buckets[bucket] += 1;
        self.sum += took;
    }
}

impl Counters {
    /// Counts the outcome of a setting.
    pub(crate) fn count(&mut self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Done => &mut self.applied,
            Outcome::Busy => &mut self.busy,
            Outcome::Awake => &mut self.awake,
            Outcome::Gone => &mut self.gone,
            Outcome::Denied(_) => &mut self.denied,
        };
        *counter += 1;
    }

    /// Counts an event of the host.
    pub(crate) fn count_event(&mut self, event: HostEvent) {
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
