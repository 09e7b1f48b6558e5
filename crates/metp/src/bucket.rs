//! The token bucket of the granted rate, as the generic cell rate algorithm: instead of tokens it keeps the time at
//! which the bucket will be full again, so no rounding error grows with time.
//!
//! A sender that waits for tokens and is woken late, because its thread had no CPU, keeps the tokens of this time up to
//! a limit. At each moment it has sent at most as much as a sender that is woken on time, so the link's queue is never
//! longer than that of the punctual sender by more than the limit. A sender without data earns nothing above the size.

use qfabric_types::{BitRate, Bytes, Instant, Nanos};

#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    rate: BitRate,
    size: Bytes,
    /// The longest late wake-up whose tokens are kept.
    lateness: Nanos,
    /// Earlier than now by up to `lateness` while tokens of a late wake-up are there.
    full_at: Instant,
    /// Something waits for tokens, or waited for the CPU.
    is_waiting: bool,
}

impl TokenBucket {
    /// Bytes below zero that acknowledgments and control datagrams may take, so that data cannot delay them: four of
    /// the largest reports.
    pub(crate) const DEBT: u64 = 1_024;

    /// A batch gathers the tokens of this time at most: data that waits for them arrives this much later.
    pub(crate) const BATCH: Nanos = Nanos::from_millis(3);

    /// A full bucket.
    pub(crate) fn new(rate: BitRate, size: Bytes, lateness: Nanos, now: Instant) -> TokenBucket {
        TokenBucket { rate, size, lateness, full_at: now, is_waiting: false }
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
        let full_at = self.full_since(now) + self.time_for(bytes);
        if full_at > now + allowed {
            self.is_waiting = true;
            return Err(Some(self.full_at + self.time_for(bytes) - allowed));
        }
        self.full_at = full_at;
        Ok(())
    }

    /// When the tokens for a batch of at most `bytes` will be there: so many that its parts leave together, so few that
    /// the bucket never overflows, and not more than come in [`TokenBucket::BATCH`].
    pub(crate) fn batch_at(&self, now: Instant, bytes: u64) -> Instant {
        (self.full_since(now) + self.gathering(bytes) - self.time_for(self.size.get())).max(now)
    }

    /// The time in which a batch of at most `bytes` gathers. Its parts reach the path together, the last one later by this.
    pub(crate) fn gathering(&self, bytes: u64) -> Nanos {
        self.time_for(bytes.min(self.size.get() / 2)).min(TokenBucket::BATCH)
    }

    /// When the bucket is or was full: at the earliest now, or `lateness` before now while something waits.
    fn full_since(&self, now: Instant) -> Instant {
        self.full_at.max(if self.is_waiting { now - self.lateness } else { now })
    }

    /// Data has been there since `since`, and the thread that sends it had no CPU.
    pub(crate) fn waited_since(&mut self, since: Instant) {
        if !self.is_waiting {
            self.full_at = self.full_at.max(since);
            self.is_waiting = true;
        }
    }

    /// There is nothing to send.
    pub(crate) fn rest(&mut self) {
        self.is_waiting = false;
    }

    /// Time from now until `bytes` more have been sent at the rate.
    pub(crate) fn time_until_sent(&self, now: Instant, bytes: u64) -> Nanos {
        (self.full_since(now) + self.time_for(bytes)).since(now + self.time_for(self.size.get()))
    }

    pub(crate) fn time_for(&self, bytes: u64) -> Nanos {
        self.rate.time_for(Bytes::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LATENESS: Nanos = Nanos::from_millis(20);

    fn bucket(rate: u64, size: u64) -> TokenBucket {
        TokenBucket::new(BitRate::new(rate), Bytes::new(size), LATENESS, Instant::ZERO)
    }

    proptest! {
        #[test]
        fn no_window_of_time_gets_more_than_the_bucket_the_lateness_and_the_rate(
            rate in 1_000u64..1_000_000_000,
            steps in prop::collection::vec((0u64..3_000_000, 1u64..1_500, 0u64..60_000_000), 1..200),
        ) {
            let (mut bucket, mut now) = (bucket(rate, 3_000), Instant::ZERO);
            let mut sent: Vec<(Instant, u64)> = Vec::new();
            for (passed, bytes, late) in steps {
                now = now + Nanos::new(passed);
                if let Err(at) = bucket.take(now, bytes) {
                    let at = at.expect("the rate is not zero");
                    prop_assert!(at > now);
                    prop_assert!(bucket.clone().take(at - Nanos::new(1), bytes).is_err(), "not earlier");
                    now = at + Nanos::new(late);
                    prop_assert_eq!(bucket.take(now, bytes), Ok(()));
                }
                if late % 2 == 0 {
                    bucket.rest();
                }
                sent.push((now, bytes));
            }
            for (from, (begin, _)) in sent.iter().enumerate() {
                let mut sum = 0;
                for (at, bytes) in &sent[from..] {
                    sum += bytes;
                    let kept = LATENESS.as_secs_f64() * rate as f64 / 8.0;
                    let allowed = 3_000.0 + kept + at.since(*begin).as_secs_f64() * rate as f64 / 8.0;
                    prop_assert!(sum as f64 <= allowed + 1.0, "{sum} > {allowed}");
                }
            }
        }
    }

    /// 1 kB/ms. Sends what the bucket allows at each wake-up, and returns the bytes.
    fn send_at(bucket: &mut TokenBucket, at_ms: u64) -> u64 {
        let now = Instant::ZERO + Nanos::from_millis(at_ms);
        (0..).take_while(|_| bucket.take(now, 100).is_ok()).count() as u64 * 100
    }

    #[test]
    fn a_late_wake_up_keeps_the_tokens_of_its_time_up_to_the_limit() {
        let mut bucket = bucket(8_000_000, 2_000);
        let sent = [0, 15, 30, 80].map(|at| send_at(&mut bucket, at));
        assert_eq!(sent, [2_000, 15_000, 15_000, 22_000], "the last one is 50 ms late, of which 20 ms count");
    }

    #[test]
    fn a_sender_without_data_earns_no_more_than_the_size_and_data_that_waited_for_the_cpu_earns_its_wait() {
        let mut bucket = bucket(8_000_000, 2_000);
        send_at(&mut bucket, 0);
        bucket.rest();
        assert_eq!(send_at(&mut bucket, 100), 2_000);
        bucket.rest();
        bucket.waited_since(Instant::ZERO + Nanos::from_millis(195));
        assert_eq!(send_at(&mut bucket, 200), 7_000, "the size, and 5 ms");
    }

    #[test]
    fn a_rate_of_zero_pauses_and_another_rate_begins_with_an_empty_bucket() {
        let mut bucket = bucket(8_000, 1_000);
        bucket.set_rate(Instant::ZERO, BitRate::ZERO);
        assert_eq!(bucket.take(Instant::ZERO, 1), Err(None));
        bucket.set_rate(Instant::ZERO, BitRate::new(8_000));
        assert_eq!(bucket.take(Instant::ZERO, 500), Err(Some(Instant::ZERO + Nanos::from_millis(500))));
    }
}
