//! Congestion control: the granted rate while a reservation is live, else a real controller.
//!
//! quinn takes a controller when a connection begins and never another one. So the real controller always runs beside
//! the granted rate and is current when the rate is revoked.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qfabric_types::BitRate;
use quinn::congestion::{BbrConfig, Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

use super::watch::{Revocation, Watch};
use crate::options::Congestion;

/// The window in packets below which no rate is kept: a window below the loss detector's threshold would wait for
/// time-outs.
const FEWEST_PACKETS: u64 = 10;
/// The window is this many times the granted rate over the *minimum* round trip. The smoothed round trip contains the
/// queue that the own packets make; a window from it grows with its own queue.
const WINDOW_TIMES: u128 = 2;
/// quinn does not pace with a window above 32 bits. Its pacer keeps 2 ms of a window: a thread that is woken late would lose
/// the rest of its time there, after METP's token bucket has kept it.
const UNPACED: u64 = 1 << 33;
/// A receiver may delay acknowledgments by this time (RFC 9000 §18.2, `max_ack_delay`); a window for a shorter round trip
/// would stall whenever it does. METP's token bucket keeps the larger window from filling a queue.
const SHORTEST_RTT: Duration = Duration::from_millis(25);
/// Before the first sample. RFC 9002 §6.2.2 has 333 ms.
const UNKNOWN_RTT: Duration = Duration::from_millis(100);

/// The rate of one connection, shared by its controller and its owner. One store changes the rate.
#[derive(Debug, Default)]
pub(crate) struct Governor {
    /// Bits per second; 0: no granted rate.
    granted: AtomicU64,
    /// How often a rate was granted.
    grants: AtomicU64,
    /// The watchdog's verdict as a number, see [`encode`]; 0: none.
    revoked: AtomicU64,
    lost_bytes: AtomicU64,
}

impl Governor {
    pub(crate) fn grant(&self, rate: BitRate) {
        self.revoked.store(0, Ordering::Relaxed);
        self.grants.fetch_add(1, Ordering::Relaxed);
        self.granted.store(rate.get(), Ordering::Relaxed);
    }

    /// Changes the granted rate, if there is one.
    pub(crate) fn change(&self, rate: BitRate) {
        let old = self.granted.load(Ordering::Relaxed);
        if old > 0 {
            // Fails if the watchdog revokes it now; the revocation stands.
            let _ = self.granted.compare_exchange(old, rate.get(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Goes back to the real controller.
    pub(crate) fn revoke(&self, why: Revocation) {
        if self.granted.swap(0, Ordering::Relaxed) > 0 {
            self.revoked.store(encode(why), Ordering::Relaxed);
        }
    }

    pub(crate) fn granted(&self) -> Option<BitRate> {
        Some(self.granted.load(Ordering::Relaxed)).filter(|rate| *rate > 0).map(BitRate::new)
    }

    /// The reason of the last revocation, once.
    pub(crate) fn take_revocation(&self) -> Option<Revocation> {
        decode(self.revoked.swap(0, Ordering::Relaxed))
    }

    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes.load(Ordering::Relaxed)
    }
}

/// A kind in the upper half, its number in the lower.
fn encode(why: Revocation) -> u64 {
    match why {
        Revocation::DelayGrows { by_ms } => 1 << 32 | by_ms.min(u64::from(u32::MAX)),
        Revocation::LossPersists { percent } => 2 << 32 | percent,
        Revocation::ReservationEnded => 3 << 32,
        Revocation::DelayStays { by_ms } => 4 << 32 | by_ms.min(u64::from(u32::MAX)),
        Revocation::OtherAddresses => 5 << 32,
    }
}

fn decode(number: u64) -> Option<Revocation> {
    let value = number & u64::from(u32::MAX);
    match number >> 32 {
        1 => Some(Revocation::DelayGrows { by_ms: value }),
        2 => Some(Revocation::LossPersists { percent: value }),
        3 => Some(Revocation::ReservationEnded),
        4 => Some(Revocation::DelayStays { by_ms: value }),
        5 => Some(Revocation::OtherAddresses),
        _ => None,
    }
}

/// Makes the controller of one connection.
pub(crate) struct GovernedFactory {
    pub(crate) governor: Arc<Governor>,
    pub(crate) congestion: Congestion,
    /// METP's token bucket paces a granted rate above QUIC; else quinn does.
    pub(crate) is_paced_above: bool,
}

impl ControllerFactory for GovernedFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let real: Box<dyn Controller> = match self.congestion {
            Congestion::Cubic => Arc::new(CubicConfig::default()).build(now, current_mtu),
            Congestion::Bbr => Arc::new(BbrConfig::default()).build(now, current_mtu),
        };
        let governor = self.governor.clone();
        Box::new(Governed {
            governor,
            real,
            watch: Watch::default(),
            watched: 0,
            begun: now,
            min_rtt: None,
            mtu: current_mtu,
            is_paced_above: self.is_paced_above,
            in_flight: 0,
        })
    }
}

struct Governed {
    governor: Arc<Governor>,
    real: Box<dyn Controller>,
    watch: Watch,
    /// The number of the grant that is watched.
    watched: u64,
    begun: Instant,
    min_rtt: Option<Duration>,
    mtu: u16,
    is_paced_above: bool,
    /// Bytes in flight: exact after each acknowledgment.
    in_flight: u64,
}

impl Governed {
    fn window_at(&self, rate: BitRate) -> u64 {
        let rtt = self.min_rtt.unwrap_or(UNKNOWN_RTT).max(SHORTEST_RTT);
        let bytes = WINDOW_TIMES * u128::from(rate.get()) * rtt.as_nanos() / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(FEWEST_PACKETS * u64::from(self.mtu))
    }

    /// Judges the granted rate. The delays and losses before the grant are not its own: a congested path is the reason
    /// to reserve a rate.
    fn judge(&mut self, now: Duration, trip: Duration, bytes: u64, min_rtt: Duration) {
        let grants = self.governor.grants.load(Ordering::Relaxed);
        if grants != self.watched {
            (self.watch, self.watched) = (Watch::default(), grants);
        }
        if let Some(why) = self.watch.acknowledged(now, trip, bytes, min_rtt) {
            self.governor.revoke(why);
        }
    }
}

impl Controller for Governed {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.real.on_sent(now, bytes, last_packet_number);
        self.in_flight += bytes;
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.real.on_ack(now, sent, bytes, app_limited, rtt);
        self.min_rtt = Some(rtt.min());
        self.judge(now - self.begun, now.saturating_duration_since(sent), bytes, rtt.min());
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.real.on_end_acks(now, in_flight, app_limited, largest);
        self.in_flight = in_flight;
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.real.on_congestion_event(now, sent, is_persistent, lost_bytes);
        self.governor.lost_bytes.fetch_add(lost_bytes, Ordering::Relaxed);
        self.watch.lost(lost_bytes);
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.real.on_mtu_update(new_mtu);
        self.mtu = new_mtu;
    }

    fn window(&self) -> u64 {
        let Some(rate) = self.governor.granted() else { return self.real.window() };
        let window = self.window_at(rate);
        if self.is_paced_above && self.in_flight < window { UNPACED } else { window }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.real.metrics();
        if let Some(rate) = self.governor.granted() {
            metrics.congestion_window = self.window_at(rate);
            metrics.pacing_rate = Some(rate.get());
        }
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Governed {
            governor: self.governor.clone(),
            real: self.real.clone_box(),
            watch: self.watch.clone(),
            watched: self.watched,
            begun: self.begun,
            min_rtt: self.min_rtt,
            mtu: self.mtu,
            is_paced_above: self.is_paced_above,
            in_flight: self.in_flight,
        })
    }

    fn initial_window(&self) -> u64 {
        self.real.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_granted_rate_and_the_real_controller_returns_when_it_is_revoked() {
        let governor = Arc::new(Governor::default());
        let factory = Arc::new(GovernedFactory {
            governor: governor.clone(),
            congestion: Congestion::Cubic,
            is_paced_above: false,
        });
        let mut controller = factory.build(Instant::now(), 1_200);
        let real = controller.window();
        governor.grant(BitRate::new(28_000_000));
        assert_eq!(controller.window(), 2 * 28_000_000 / 8 / 10, "twice the rate over 100 ms");
        controller.on_congestion_event(Instant::now(), Instant::now(), false, 1_200);
        assert_eq!(controller.window(), 700_000, "loss does not change it");
        governor.revoke(Revocation::LossPersists { percent: 12 });
        assert!(controller.window() <= real, "Cubic has seen the loss");
        assert_eq!(governor.take_revocation(), Some(Revocation::LossPersists { percent: 12 }));
        assert_eq!((governor.take_revocation(), governor.granted()), (None, None));
    }

    #[test]
    fn a_rate_that_metp_paces_is_not_paced_again_until_the_window_is_full() {
        let governor = Arc::new(Governor::default());
        let congestion = Congestion::Cubic;
        let factory = Arc::new(GovernedFactory { governor: governor.clone(), congestion, is_paced_above: true });
        let mut controller = factory.build(Instant::now(), 1_200);
        governor.grant(BitRate::new(28_000_000));
        assert_eq!(controller.window(), UNPACED);
        controller.on_sent(Instant::now(), 700_000, 1);
        assert_eq!(controller.window(), 700_000, "a path that acknowledges nothing gets no more");
        controller.on_end_acks(Instant::now(), 650_000, false, Some(1));
        assert_eq!(controller.window(), UNPACED);
    }

    #[test]
    fn a_grant_is_not_judged_by_the_delays_before_it() {
        let governor = Arc::new(Governor::default());
        let factory = Arc::new(GovernedFactory {
            governor: governor.clone(),
            congestion: Congestion::Cubic,
            is_paced_above: true,
        });
        let mut controller = factory.build(Instant::now(), 1_200).into_any().downcast::<Governed>().unwrap();
        let rtt = Duration::from_millis(40);
        let mut rounds = |rounds: std::ops::Range<u32>, trip| {
            rounds.for_each(|round| controller.judge(rtt * round, trip, 1_400, rtt));
        };
        rounds(0..60, 4 * rtt);
        governor.grant(BitRate::new(8_000_000));
        rounds(60..100, rtt);
        assert_eq!(governor.granted(), Some(BitRate::new(8_000_000)));
        rounds(100..160, 4 * rtt);
        assert!(matches!(governor.take_revocation(), Some(Revocation::DelayStays { .. })));
    }

    #[test]
    fn a_small_rate_has_a_window_of_some_packets() {
        let governor = Arc::new(Governor::default());
        let factory = Arc::new(GovernedFactory {
            governor: governor.clone(),
            congestion: Congestion::Bbr,
            is_paced_above: false,
        });
        governor.grant(BitRate::new(1));
        assert_eq!(factory.build(Instant::now(), 1_200).window(), 12_000);
    }
}
