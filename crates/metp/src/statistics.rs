//! Counters of a session.

use hdrhistogram::Histogram;
use qfabric_types::Nanos;

use crate::FrameKind;

/// Counters and measurements of one endpoint since its begin. Counters of kinds are in the order of `FrameKind::ALL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    // The sending half.
    /// Messages that `send` accepted.
    pub messages: u64,
    pub delivered: u64,
    /// Messages that were dropped, by kind.
    pub dropped: [u64; FrameKind::ALL.len()],
    pub dropped_late: u64,
    pub dropped_to_make_room: u64,
    /// Messages that were dropped, because the peer accepts only smaller ones.
    pub dropped_too_large: u64,
    pub expired: u64,
    pub partly: u64,
    /// Data TPDUs, retransmissions included.
    pub tpdus: u64,
    pub retransmissions: u64,
    /// Retransmissions that followed another one without waiting for its loss, at times when nothing else was to be sent.
    pub copies: u64,
    /// Retransmissions of a first unacknowledged TPDU after a timeout (the optimistic scenario).
    pub optimistic: u64,
    /// Messages of which all unacknowledged TPDUs were retransmitted after a second timeout (the pessimistic scenario).
    pub pessimistic: u64,
    /// TPDUs whose retransmission was refused, because it would have arrived late.
    pub refused_late: u64,
    /// Bytes of all datagrams, with their headers, without the overhead of the layers below.
    pub sent_bytes: u64,
    /// Bytes of messages that were acknowledged.
    pub acknowledged_bytes: u64,
    /// Duplicates that the peer reported.
    pub peer_duplicates: u64,
    /// The largest datagram that is sent now: of those that carrier and peer take, one that the path still carries.
    pub largest_datagram: u16,
    /// The current timeout of retransmissions.
    pub timeout: Nanos,
    /// The last and the shortest round-trip time; zero before the first measurement.
    pub rtt: Nanos,
    pub min_rtt: Nanos,

    // The receiving half.
    pub received: u64,
    /// Of the received messages, those that were complete and not later than their deadline.
    pub in_time: u64,
    pub with_holes: u64,
    pub skipped: u64,
    /// Messages that the application did not take before their deadline.
    pub not_taken: u64,
    pub received_bytes: u64,
    pub duplicates: u64,
    /// TPDUs of messages that were already delivered or given up.
    pub late_tpdus: u64,
    /// Datagrams that could not be read.
    pub unreadable: u64,
    /// TPDUs that contradict others or exceed the admitted message size, the memory or the number of messages.
    pub refused: u64,
    pub reports: u64,
    pub delay: DelaySummary,
}

/// Delays of complete messages, see [`crate::Received::delay`], with a relative error below 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelaySummary {
    pub count: u64,
    pub p50: Nanos,
    pub p99: Nanos,
    pub max: Nanos,
}

/// Delays in µs.
#[derive(Clone, Debug)]
pub(crate) struct DelayHistogram(Histogram<u64>);

impl DelayHistogram {
    /// One minute in µs; longer delays count as one minute.
    const LONGEST_US: u64 = 60_000_000;

    pub(crate) fn new() -> DelayHistogram {
        // The bounds are constants that the library accepts.
        DelayHistogram(Histogram::new_with_bounds(1, DelayHistogram::LONGEST_US, 2).expect("valid bounds"))
    }

    pub(crate) fn record(&mut self, delay: Nanos) {
        self.0.saturating_record((delay.get() / 1_000).max(1));
    }

    pub(crate) fn summary(&self) -> DelaySummary {
        let at = |quantile| Nanos::from_micros(self.0.value_at_quantile(quantile));
        let count = self.0.len();
        if count == 0 {
            return DelaySummary::default();
        }
        DelaySummary { count, p50: at(0.5), p99: at(0.99), max: Nanos::from_micros(self.0.max()) }
    }
}
