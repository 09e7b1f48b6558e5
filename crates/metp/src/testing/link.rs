//! One direction of a network path: loss, queue, rate, delay, reordering, duplication.

use qfabric_types::{BitRate, Bytes, Instant, Nanos, RandomNumbers};

/// How datagrams are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Each datagram is lost with this probability.
    Bernoulli(f64),
    /// Two states (Gilbert and Elliott): in the bad one, all datagrams are lost. Probabilities for each datagram.
    GilbertElliott { to_bad: f64, to_good: f64 },
}

/// Properties of one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSettings {
    pub loss: Loss,
    pub rate: BitRate,
    /// Bytes that wait for the link; a datagram that does not fit is lost.
    pub queue: Bytes,
    pub delay: Nanos,
    /// Probability that a datagram takes up to `reordering_delay` longer, so that later ones overtake it.
    pub reordering: f64,
    pub reordering_delay: Nanos,
    pub duplication: f64,
    /// Larger datagrams are lost without a sign.
    pub mtu: u16,
    /// Bytes of the layers below for each datagram.
    pub overhead: u16,
}

impl Default for LinkSettings {
    /// 30 Mbit/s, 20 ms, a queue of 100 ms, no loss.
    fn default() -> LinkSettings {
        LinkSettings {
            loss: Loss::Bernoulli(0.0),
            rate: BitRate::new(30_000_000),
            queue: Bytes::new(375_000),
            delay: Nanos::from_millis(20),
            reordering: 0.0,
            reordering_delay: Nanos::from_millis(5),
            duplication: 0.0,
            mtu: u16::MAX,
            overhead: 66,
        }
    }
}

/// One direction of a path.
#[derive(Clone, Debug)]
pub struct Link {
    pub settings: LinkSettings,
    random: RandomNumbers,
    is_bad: bool,
    /// When the last byte in the queue has been sent.
    idle_at: Instant,
    pub passed: u64,
    pub lost: u64,
}

impl Link {
    pub fn new(settings: LinkSettings, seed: u64) -> Link {
        let random = RandomNumbers::new(seed);
        Link { settings, random, is_bad: false, idle_at: Instant::ZERO, passed: 0, lost: 0 }
    }

    /// The times of arrival of a datagram: none if it is lost, two if it is duplicated.
    pub fn carry(&mut self, now: Instant, bytes: usize) -> [Option<Instant>; 2] {
        let size = bytes as u64 + u64::from(self.settings.overhead);
        let waiting = self.idle_at.since(now);
        let is_full = waiting > self.settings.rate.time_for(self.settings.queue);
        if self.is_lost() || is_full || bytes > usize::from(self.settings.mtu) {
            self.lost += 1;
            return [None, None];
        }
        self.passed += 1;
        self.idle_at = self.idle_at.max(now) + self.settings.rate.time_for(Bytes::new(size));
        let arrival = self.idle_at + self.settings.delay;
        let is_doubled = self.random.uniform() < self.settings.duplication;
        [Some(self.overtaken(arrival)), is_doubled.then(|| self.overtaken(arrival))]
    }

    fn is_lost(&mut self) -> bool {
        match self.settings.loss {
            Loss::Bernoulli(probability) => self.random.uniform() < probability,
            Loss::GilbertElliott { to_bad, to_good } => {
                let change = if self.is_bad { to_good } else { to_bad };
                self.is_bad ^= self.random.uniform() < change;
                self.is_bad
            }
        }
    }

    fn overtaken(&mut self, arrival: Instant) -> Instant {
        if self.random.uniform() >= self.settings.reordering {
            return arrival;
        }
        arrival + Nanos::from_f64(self.random.uniform() * self.settings.reordering_delay.as_f64())
    }
}
