//! Renews a profile of delays by the messages of a running stream (QualMan §5.1.2: the profile is kept up to date).

use std::collections::VecDeque;

use crate::{BitRate, Bytes, DelayPoint, DelayProfile, Nanos, NoDelay};

/// The delays of the recent messages of one stream.
///
/// A profile stands for messages of a size. So only messages of at least three quarters of the largest size count: a mix
/// with small messages would make the delay of the large ones look too short.
#[derive(Clone, Debug)]
pub struct DelayRenewal {
    message: Bytes,
    rate: BitRate,
    /// In the order of arrival; `None`: lost.
    recent: VecDeque<Option<Nanos>>,
}

impl DelayRenewal {
    /// Least number of arrived messages that renew a profile: below it, one message decides p99.
    pub const LEAST: usize = 100;
    /// Number of recent messages that count.
    pub const MOST: usize = 1_000;

    /// `message`: the size of the stream's largest message. `rate`: its granted rate, with headers.
    pub fn new(message: Bytes, rate: BitRate) -> DelayRenewal {
        DelayRenewal { message, rate, recent: VecDeque::with_capacity(Self::MOST) }
    }

    /// A message of `bytes` has arrived after `delay`, from its first byte sent to its last byte received. Returns whether
    /// it counts.
    pub fn arrived(&mut self, bytes: Bytes, delay: Nanos) -> bool {
        self.count(bytes, Some(delay))
    }

    /// A message of `bytes` has not arrived. Returns whether it counts.
    pub fn lost(&mut self, bytes: Bytes) -> bool {
        self.count(bytes, None)
    }

    fn count(&mut self, bytes: Bytes, delay: Option<Nanos>) -> bool {
        let least = self.message.get() - self.message.get() / 4;
        let counts = (least..=self.message.get()).contains(&bytes.get());
        if counts {
            self.recent.truncate(Self::MOST - 1);
            self.recent.push_front(delay);
        }
        counts
    }

    /// The stream's granted rate has changed: earlier delays do not hold for it.
    pub fn change_rate(&mut self, rate: BitRate) {
        if rate != self.rate {
            (self.rate, self.recent) = (rate, VecDeque::with_capacity(Self::MOST));
        }
    }

    /// The renewed point; `None` before [`DelayRenewal::LEAST`] messages have arrived.
    pub fn point(&self) -> Option<DelayPoint> {
        let mut delays: Vec<Nanos> = self.recent.iter().flatten().copied().collect();
        delays.sort_unstable();
        // The nearest rank.
        let quantile = |percent: usize| delays.get((delays.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        let (p50, p99) = quantile(50).zip(quantile(99)).filter(|_| delays.len() >= Self::LEAST)?;
        let (arrived, lost) = (delays.len() as u32, (self.recent.len() - delays.len()) as u32);
        Some(DelayPoint { message_bytes: self.message, rate_bps: self.rate, p50, p99, arrived, lost })
    }
}

impl DelayProfile {
    /// Replaces the point of the same size and rate, or adds it.
    ///
    /// # Errors
    /// The profile has [`DelayProfile::MOST_POINTS`] other points; it is unchanged.
    pub fn renew(&mut self, point: DelayPoint) -> Result<(), NoDelay> {
        let key = |point: &DelayPoint| (point.message_bytes, point.rate_bps);
        match self.points.iter().position(|former| key(former) == key(&point)) {
            Some(at) => self.points[at] = point,
            None if self.points.len() >= Self::MOST_POINTS => {
                return Err(NoDelay::TooMany { given: self.points.len() + 1 });
            }
            None => self.points.push(point),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MESSAGE: Bytes = Bytes::new(60_000);

    fn renewal() -> DelayRenewal {
        DelayRenewal::new(MESSAGE, BitRate::new(5_000_000))
    }

    fn profile(points: Vec<DelayPoint>) -> DelayProfile {
        let (host, kernel) = ("beta".to_owned(), "7.3".to_owned());
        DelayProfile { host, interface: "eth0".parse().unwrap(), kernel, min_rtt: Nanos::ZERO, points }
    }

    #[test]
    fn a_hundred_messages_renew_the_point_of_their_size_and_rate() {
        let mut renewal = renewal();
        for ms in 1..=99 {
            assert!(renewal.arrived(MESSAGE, Nanos::from_millis(ms)));
        }
        assert_eq!(renewal.point(), None);
        assert!(renewal.lost(MESSAGE) && !renewal.arrived(Bytes::new(44_999), Nanos::ZERO), "small ones do not count");
        renewal.arrived(Bytes::new(45_000), Nanos::from_millis(100));
        let point = renewal.point().unwrap();
        assert_eq!((point.p50, point.p99), (Nanos::from_millis(50), Nanos::from_millis(99)));
        assert_eq!((point.arrived, point.lost), (100, 1));
        let mut profile = profile(vec![DelayPoint { p99: Nanos::from_millis(7), ..point.clone() }]);
        profile.renew(point.clone()).unwrap();
        assert_eq!(profile.points, std::slice::from_ref(&point));
        profile.renew(DelayPoint { rate_bps: BitRate::new(9), ..point.clone() }).unwrap();
        assert_eq!(profile.points.len(), 2);
        renewal.change_rate(BitRate::new(6_000_000));
        assert_eq!(renewal.point(), None);
        profile.points = vec![point.clone(); DelayProfile::MOST_POINTS];
        assert!(profile.renew(DelayPoint { message_bytes: Bytes::new(1), ..point }).is_err());
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_old_messages_are_forgotten(delays in prop::collection::vec(0u64..1 << 40, 0..2_500)) {
            let mut renewal = renewal();
            delays.iter().for_each(|delay| _ = renewal.arrived(MESSAGE, Nanos::new(*delay)));
            prop_assert!(renewal.recent.len() <= DelayRenewal::MOST);
            let recent = &delays[delays.len().saturating_sub(DelayRenewal::MOST)..];
            let longest = recent.iter().max().copied().unwrap_or_default();
            prop_assert_eq!(renewal.point().is_some(), delays.len() >= DelayRenewal::LEAST);
            prop_assert!(renewal.point().is_none_or(|point| point.p50 <= point.p99 && point.p99.get() <= longest));
        }
    }
}
