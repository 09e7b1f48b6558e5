//! The token bucket of the granted rate, as the generic cell rate algorithm: instead of tokens it keeps the time at
//! which the bucket will be full again, so no rounding error grows with time.

use qfabric_types::{BitRate, Bytes, Instant, Nanos};

#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    rate: BitRate,
    size: Bytes,
    full_at: Instant,
}

impl TokenBucket {
    /// Bytes below zero that acknowledgments and control datagrams may take, so that data cannot delay them: four of
    /// the largest reports.
    pub(crate) const DEBT: u64 = 1_024;

    /// A full bucket.
    pub(crate) fn new(rate: BitRate, size: Bytes, now: Instant) -> TokenBucket {
        TokenBucket { rate, size, full_at: now }
    }

    pub(crate) fn rate(&self) -> BitRate {
        self.rate
    }

    /// Changes the rate. The missing tokens stay missing.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        let missing = if self.rate == BitRate::ZERO { self.size.get() } else { self.missing(now) };
        self.rate = rate;
        if rate != BitRate::ZERO {
            self.full_at = now + rate.time_for(Bytes::new(missing));
        }
    }

    /// Bytes that are missing now, rounded up.
    fn missing(&self, now: Instant) -> u64 {
        let bits = u128::from(self.full_at.since(now).get()) * u128::from(self.rate.get());
        bits.div_ceil(8_000_000_000).min(u128::from(u64::MAX)) as u64
    }

    /// Takes `bytes` now, or returns when they will be there; `None` if the rate is zero.
    pub(crate) fn take(&mut self, now: Instant, bytes: u64) -> Result<(), Option<Instant>> {
        self.take_with_debt(now, bytes, 0)
    }

    pub(crate) fn take_with_debt(&mut self, now: Instant, bytes: u64, debt: u64) -> Result<(), Option<Instant>> {
        if self.rate == BitRate::ZERO {
            return Err(None);
        }
        // A datagram above the size of the bucket passes when the bucket is full.
        let allowed = self.time_for(self.size.get().max(bytes)) + self.time_for(debt);
        let full_at = self.full_at.max(now) + self.time_for(bytes);
        if full_at > now + allowed {
            return Err(Some(self.full_at + self.time_for(bytes) - allowed));
        }
        self.full_at = full_at;
        Ok(())
    }

    /// Time from now until `bytes` more have been sent at the rate.
    pub(crate) fn time_until_sent(&self, now: Instant, bytes: u64) -> Nanos {
        let full_in = self.full_at.since(now);
        (full_in + self.time_for(bytes)).saturating_sub(self.time_for(self.size.get()))
    }

    pub(crate) fn time_for(&self, bytes: u64) -> Nanos {
        self.rate.time_for(Bytes::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_window_of_time_gets_more_than_the_bucket_and_the_rate(
            rate in 1_000u64..1_000_000_000,
            steps in prop::collection::vec((0u64..3_000_000, 1u64..1_500), 1..200),
        ) {
            let (mut bucket, mut now) = (TokenBucket::new(BitRate::new(rate), Bytes::new(3_000), Instant::ZERO), Instant::ZERO);
            let mut sent: Vec<(Instant, u64)> = Vec::new();
            for (passed, bytes) in steps {
                now = now + Nanos::new(passed);
                if let Err(at) = bucket.take(now, bytes) {
                    let at = at.expect("the rate is not zero");
                    prop_assert!(at > now);
                    prop_assert!(bucket.clone().take(at - Nanos::new(1), bytes).is_err(), "not earlier");
                    now = at;
                    prop_assert_eq!(bucket.take(now, bytes), Ok(()));
                }
                sent.push((now, bytes));
            }
            for (from, (begin, _)) in sent.iter().enumerate() {
                let mut sum = 0;
                for (at, bytes) in &sent[from..] {
                    sum += bytes;
                    let allowed = 3_000.0 + at.since(*begin).as_secs_f64() * rate as f64 / 8.0;
                    prop_assert!(sum as f64 <= allowed + 1.0, "{sum} > {allowed}");
                }
            }
        }
    }

    #[test]
    fn a_rate_of_zero_pauses_and_another_rate_begins_with_an_empty_bucket() {
        let mut bucket = TokenBucket::new(BitRate::new(8_000), Bytes::new(1_000), Instant::ZERO);
        bucket.set_rate(Instant::ZERO, BitRate::ZERO);
        assert_eq!(bucket.take(Instant::ZERO, 1), Err(None));
        bucket.set_rate(Instant::ZERO, BitRate::new(8_000));
        assert_eq!(bucket.take(Instant::ZERO, 500), Err(Some(Instant::ZERO + Nanos::from_millis(500))));
    }
}
