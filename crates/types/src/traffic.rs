//! Traffic of a stream as a token bucket with a peak rate, and the longest delay at a server of a constant rate.
//!
//! Symbols as in RFC 2212 and RFC 2215: token rate r, bucket b, peak p, largest message M; server rate R; the path's
//! error terms C (bytes at rate R) and D (time). The source sends at most min(M + p·t, b + r·t) in any interval t.

use serde::{Deserialize, Serialize};

use crate::api::Problem;
use crate::{BitRate, Bytes, Nanos};

/// The traffic specification of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(try_from = "Parts", into = "Parts")]
pub struct TrafficSpec(Parts);

/// The values of a traffic specification, before they are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = TrafficParts))]
#[serde(deny_unknown_fields)]
struct Parts {
    /// r, the token rate.
    rate_bps: BitRate,
    /// b, the size of the bucket; at least M.
    bucket_bytes: Bytes,
    /// p, the peak rate; at least r.
    peak_bps: BitRate,
    /// M, the largest message.
    largest_bytes: Bytes,
}

/// The values contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InvalidTraffic {
    NoRate,
    NoMessage,
    PeakBelowRate { peak: BitRate, rate: BitRate },
    BucketTooSmall { bucket: Bytes, largest: Bytes },
}

impl InvalidTraffic {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            Self::NoRate => ("the token rate is 0".to_owned(), "state the mean rate of the stream".to_owned()),
            Self::NoMessage => {
                ("the largest message has 0 bytes".to_owned(), "state the size of the largest packet".to_owned())
            }
            Self::PeakBelowRate { peak, rate } => (
                format!("the peak rate {peak} is below the token rate {rate}"),
                "raise the peak rate to at least the token rate".to_owned(),
            ),
            Self::BucketTooSmall { bucket, largest } => {
                let (bucket, largest) = (bucket.get(), largest.get());
                (
                    format!("the bucket of {bucket} bytes does not hold the largest message of {largest} bytes"),
                    format!("use a bucket of at least {largest} bytes"),
                )
            }
        };
        Problem::new("invalid_traffic", message, next_step)
    }
}

/// Error terms of a path (RFC 2212): its deviation from a server of a constant rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathError {
    /// `C_tot`: bytes that delay a packet by their time at rate R.
    pub bytes: Bytes,
    /// `D_tot`: delay that does not depend on R.
    pub time: Nanos,
}

impl TrafficSpec {
    /// # Errors
    /// A value is zero, p < r, or b < M.
    pub fn new(rate: BitRate, bucket: Bytes, peak: BitRate, largest: Bytes) -> Result<TrafficSpec, InvalidTraffic> {
        if rate == BitRate::ZERO {
            return Err(InvalidTraffic::NoRate);
        }
        if largest == Bytes::ZERO {
            return Err(InvalidTraffic::NoMessage);
        }
        if peak < rate {
            return Err(InvalidTraffic::PeakBelowRate { peak, rate });
        }
        if bucket < largest {
            return Err(InvalidTraffic::BucketTooSmall { bucket, largest });
        }
        Ok(TrafficSpec(Parts { rate_bps: rate, bucket_bytes: bucket, peak_bps: peak, largest_bytes: largest }))
    }

    /// r, the token rate.
    pub fn rate(&self) -> BitRate {
        self.0.rate_bps
    }
    /// b, the size of the bucket.
    pub fn bucket(&self) -> Bytes {
        self.0.bucket_bytes
    }
    /// p, the peak rate.
    pub fn peak(&self) -> BitRate {
        self.0.peak_bps
    }
    /// M, the largest message.
    pub fn largest(&self) -> Bytes {
        self.0.largest_bytes
    }

    /// The longest delay of a packet at a server of rate R, rounded up; `None` if R < r, because the delay then has no
    /// bound.
    ///
    /// * r ≤ R < p: (b − M)/R · (p − R)/(p − r) + (M + C)/R + D
    /// * p ≤ R: (M + C)/R + D
    pub fn delay_bound(&self, rate: BitRate, error: PathError) -> Option<Nanos> {
        if rate < self.rate() {
            return None;
        }
        let burst =
            if rate < self.peak() { self.burst_time() * (self.p() - rate.as_f64()) / rate.as_f64() } else { 0.0 };
        let seconds = burst + self.message_bits(error) / rate.as_f64();
        Some(Nanos::new(Nanos::from_f64((seconds * 1e9).ceil()).get().saturating_add(error.time.get())))
    }

    /// The smallest rate R ≥ r whose delay bound is at most `delay`, rounded up; `None` if no rate suffices, because
    /// `delay` does not exceed D.
    pub fn rate_for(&self, delay: Nanos, error: PathError) -> Option<BitRate> {
        let left = delay.saturating_sub(error.time).as_secs_f64();
        if left <= 0.0 {
            return None;
        }
        let message = self.message_bits(error);
        let below_peak = (self.burst_time() * self.p() + message) / (left + self.burst_time());
        let rate = if below_peak < self.p() { below_peak } else { message / left };
        (rate < BitRate::MAX.as_f64()).then(|| BitRate::new(rate.ceil() as u64).max(self.rate()))
    }

    /// (b − M)/(p − r): the longest time at the peak rate, in seconds; 0 if the peak never exceeds the token rate.
    fn burst_time(&self) -> f64 {
        let (spread, above) = (self.p() - self.rate().as_f64(), self.bucket().saturating_sub(self.largest()));
        if spread > 0.0 { above.as_f64() * 8.0 / spread } else { 0.0 }
    }

    /// M + C in bits.
    fn message_bits(&self, error: PathError) -> f64 {
        (self.largest().as_f64() + error.bytes.as_f64()) * 8.0
    }

    fn p(&self) -> f64 {
        self.peak().as_f64()
    }
}

impl TryFrom<Parts> for TrafficSpec {
    type Error = InvalidTraffic;

    fn try_from(parts: Parts) -> Result<Self, InvalidTraffic> {
        TrafficSpec::new(parts.rate_bps, parts.bucket_bytes, parts.peak_bps, parts.largest_bytes)
    }
}

impl From<TrafficSpec> for Parts {
    fn from(spec: TrafficSpec) -> Parts {
        spec.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(rate: u64, bucket: u64, peak: u64, largest: u64) -> TrafficSpec {
        TrafficSpec::new(BitRate::new(rate), Bytes::new(bucket), BitRate::new(peak), Bytes::new(largest)).unwrap()
    }

    /// A source with two token buckets, (M, p) and (b, r). Times in seconds.
    struct Source {
        spec: TrafficSpec,
        now: f64,
        bucket: f64,
        peak: f64,
    }

    impl Source {
        fn new(spec: TrafficSpec) -> Source {
            Source { spec, now: 0.0, bucket: spec.bucket().as_f64() * 8.0, peak: spec.largest().as_f64() * 8.0 }
        }

        fn pass(&mut self, time: f64) {
            self.now += time;
            self.bucket = (self.bucket + time * self.spec.rate().as_f64()).min(self.spec.bucket().as_f64() * 8.0);
            self.peak = (self.peak + time * self.spec.peak().as_f64()).min(self.spec.largest().as_f64() * 8.0);
        }

        /// Sends a packet at the earliest time that both buckets allow; returns the time.
        fn send(&mut self, bytes: u64) -> f64 {
            let bits = bytes as f64 * 8.0;
            let wait = ((bits - self.bucket) / self.spec.rate().as_f64())
                .max((bits - self.peak) / self.spec.peak().as_f64())
                .max(0.0);
            self.pass(wait);
            (self.bucket, self.peak) = (self.bucket - bits, self.peak - bits);
            self.now
        }
    }

    /// Longest delay of the packets (idle time before it in seconds, size in bytes) at a FIFO server of `rate`.
    fn longest_delay(spec: TrafficSpec, rate: BitRate, packets: impl IntoIterator<Item = (f64, u64)>) -> f64 {
        let (mut source, mut idle_at, mut longest) = (Source::new(spec), 0.0f64, 0.0f64);
        for (idle, bytes) in packets {
            source.pass(idle);
            let arrived = source.send(bytes);
            idle_at = idle_at.max(arrived) + bytes as f64 * 8.0 / rate.as_f64();
            longest = longest.max(idle_at - arrived);
        }
        longest
    }

    fn any_spec() -> impl Strategy<Value = TrafficSpec> {
        (10_000u64..10_000_000, 64u64..2_000, 0u64..100_000, 0u64..50_000_000)
            .prop_map(|(rate, largest, more, above)| spec(rate, largest + more, rate + above, largest))
    }

    proptest! {
        #[test]
        fn no_packet_of_a_conforming_source_exceeds_the_bound(
            spec in any_spec(),
            spare in 0u64..20_000_000,
            packets in prop::collection::vec((prop_oneof![4 => Just(0.0), 1 => 0.0..0.5f64], 1u64..2_000), 1..300),
        ) {
            let rate = spec.rate() + BitRate::new(spare);
            let bound = spec.delay_bound(rate, PathError::default()).unwrap().as_secs_f64();
            let packets = packets.into_iter().map(|(idle, bytes)| (idle, bytes.min(spec.largest().get())));
            let longest = longest_delay(spec, rate, packets);
            prop_assert!(longest <= bound * (1.0 + 1e-9) + 1e-9, "{longest} s > {bound} s: {spec:?} at {rate}");
        }

        #[test]
        fn a_greedy_source_comes_within_a_packet_of_the_bound(spec in any_spec(), spare in 0u64..20_000_000) {
            let rate = spec.rate() + BitRate::new(spare);
            let bound = spec.delay_bound(rate, PathError::default()).unwrap().as_secs_f64();
            let count = 2 + spec.bucket().get() * 2 / spec.largest().get() * (1 + spec.peak().get() / (spec.peak() - spec.rate()).get().max(1)).min(100);
            let greedy = (0..count).map(|_| (0.0, spec.largest().get()));
            let packet = spec.largest().as_f64() * 8.0 / rate.as_f64();
            let longest = longest_delay(spec, rate, greedy);
            prop_assert!(longest >= bound - packet - 1e-9, "{longest} s, bound {bound} s, packet {packet} s: {spec:?}");
        }

        #[test]
        fn the_rate_for_a_delay_keeps_the_delay_and_is_the_smallest(
            spec in any_spec(), delay_us in 100u64..1_000_000, bytes in 0u64..10_000, time_us in 0u64..50_000,
        ) {
            let error = PathError { bytes: Bytes::new(bytes), time: Nanos::from_micros(time_us) };
            let delay = Nanos::from_micros(delay_us);
            match spec.rate_for(delay, error) {
                None => prop_assert!(delay <= error.time),
                Some(rate) => {
                    let kept = spec.delay_bound(rate, error).unwrap();
                    prop_assert!(kept.get() <= delay.get() + 2, "{kept} > {delay} at {rate}");
                    let less = BitRate::new((rate.as_f64() * 0.999) as u64);
                    let slower = spec.delay_bound(less, error);
                    prop_assert!(rate == spec.rate() || slower.is_none_or(|slower| slower >= delay), "{less} suffices");
                }
            }
        }
    }

    #[test]
    fn the_bound_has_the_values_of_the_formula() {
        // b − M = 10,000 bytes at p − r = 9 Mbit/s, R = 2 Mbit/s: 40 ms · 8/9 + 4 ms.
        let spec = spec(1_000_000, 11_000, 10_000_000, 1_000);
        assert_eq!(spec.delay_bound(BitRate::new(2_000_000), PathError::default()), Some(Nanos::new(39_555_556)));
        let error = PathError { bytes: Bytes::new(500), time: Nanos::from_millis(3) };
        assert_eq!(spec.delay_bound(BitRate::new(12_000_000), error), Some(Nanos::from_millis(4)));
        assert_eq!(spec.delay_bound(BitRate::new(999_999), error), None);
    }

    #[test]
    fn contradictions_are_refused_with_the_values() {
        let refused = |rate, bucket, peak, largest| {
            TrafficSpec::new(BitRate::new(rate), Bytes::new(bucket), BitRate::new(peak), Bytes::new(largest))
                .unwrap_err()
                .to_string()
        };
        assert!(refused(0, 1, 1, 1).contains("token rate is 0"));
        assert!(refused(5_000, 100, 4_000, 100).contains("4 kbit/s is below the token rate 5 kbit/s"));
        assert!(refused(5_000, 100, 6_000, 200).contains("at least 200 bytes"));
        assert!(refused(5_000, 100, 6_000, 0).contains("0 bytes"));
    }
}
