//! The clock of a host, with an offset and a drift.

use qfabric_types::Instant;

/// Host time = offset + virtual time · (1 + ppm/10⁶).
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    offset_ns: u64,
    ppm: i64,
}

impl Clock {
    /// `ppm` is the drift in millionths; a negative clock is slow. Limited to ±100,000.
    pub(super) fn new(offset_ns: u64, ppm: i64) -> Clock {
        Clock { offset_ns, ppm: ppm.clamp(-100_000, 100_000) }
    }

    /// The time that the host's clock shows at the virtual time `at`.
    pub(super) fn shows(&self, at: Instant) -> Instant {
        let drifted = i128::from(at.get()) * i128::from(1_000_000 + self.ppm) / 1_000_000;
        Instant::new(self.offset_ns + drifted as u64)
    }

    /// The first virtual time at which the host's clock shows at least `shown`.
    pub(super) fn when(&self, shown: Instant) -> Instant {
        let since = i128::from(shown.get().saturating_sub(self.offset_ns));
        let rate = i128::from(1_000_000 + self.ppm);
        let at = (since * 1_000_000 + rate - 1).div_euclid(rate);
        Instant::new(u64::try_from(at).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_wakeup_by_the_hosts_clock_is_never_too_early(
            offset in 0u64..1 << 50, ppm in -500i64..500, later in 0u64..1 << 50
        ) {
            let clock = Clock::new(offset, ppm);
            let shown = Instant::new(offset + later);
            let at = clock.when(shown);
            prop_assert!(clock.shows(at) >= shown);
            prop_assert!(at.get() == 0 || clock.shows(Instant::new(at.get() - 1)) < shown);
        }
    }
}
