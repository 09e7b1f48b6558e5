//! The channels that a user makes active: each one uses up numbers of the network's session (`qfabric-link`), which
//! come back only with a new session. An account for each user bounds how often a user can make that necessary.

use std::collections::BTreeMap;

use qfabric_types::{Instant, Nanos};

/// Channels that a user makes active at once after a pause.
pub(super) const BURST: u64 = 1_024;
/// Afterwards the time between two.
const INTERVAL: Nanos = Nanos::from_millis(1_000);

/// For each user, the time at which the account is full again. Full accounts are not kept.
#[derive(Debug, Default)]
pub(super) struct Openings(BTreeMap<u32, Instant>);

impl Openings {
    /// Whether the user's account covers another channel now.
    pub(super) fn covers(&self, uid: u32, now: Instant) -> bool {
        self.after_another(uid, now).since(now) <= INTERVAL.saturating_mul(BURST)
    }

    /// Charges the payer's account for a channel that was made active.
    pub(super) fn charge(&mut self, payer: Option<u32>, now: Instant) {
        let Some(uid) = payer else { return };
        self.0.retain(|_, full_at| *full_at > now);
        let full_at = self.after_another(uid, now);
        self.0.insert(uid, full_at);
    }

    /// When the user's account would be full again after another channel.
    fn after_another(&self, uid: u32, now: Instant) -> Instant {
        self.0.get(&uid).map_or(now, |full_at| (*full_at).max(now)) + INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_makes_a_burst_of_channels_active_and_then_one_each_second() {
        let (mut openings, begin) = (Openings::default(), Instant::ZERO);
        let mut taken = |uid, after: u64| {
            let now = begin + INTERVAL.saturating_mul(after);
            let covered = |_: &u64| {
                let is_covered = openings.covers(uid, now);
                openings.charge(is_covered.then_some(uid), now);
                is_covered
            };
            (0..2 * BURST).filter(covered).count() as u64
        };
        assert_eq!([taken(54_321, 0), taken(54_321, 0), taken(54_322, 0)], [BURST, 0, BURST]);
        assert_eq!([taken(54_321, 3), taken(54_321, 10 * BURST)], [3, BURST]);
    }
}
