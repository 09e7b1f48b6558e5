//! An account of a use that a rate limits in the long run (the generic cell rate algorithm). Time comes from the
//! caller. Units of the use are the caller's: bytes, instructions, nanoseconds of CPU time.

use crate::{Instant, Nanos};

/// The time until which a rate covers all use so far. A time without use saves no credit. The owner of the account
/// decides how far ahead of now it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateAccount {
    covered: Instant,
}

impl RateAccount {
    /// Charges a use of `amount` units, which did not begin before `began`, at `rate` units per second (at least 1).
    /// The time is rounded up, and at most [`Nanos::MAX`].
    pub fn charge(&mut self, amount: u64, rate: u64, began: Instant) {
        let time = (u128::from(amount) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        self.covered = self.covered.max(began) + u64::try_from(time).map_or(Nanos::MAX, Nanos::new);
    }

    /// The time from which on the rate covers all use.
    pub fn until(self) -> Instant {
        self.covered
    }

    /// The time from `now` until the rate covers all use; zero if it does already.
    pub fn ahead(self, now: Instant) -> Nanos {
        self.covered.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    #[test]
    fn use_at_the_rate_stays_covered_and_use_above_it_adds_up() {
        let mut account = RateAccount::default();
        for ms in 1_000..2_000 {
            account.charge(1, 1_000, at(ms));
            assert_eq!(account.until(), at(ms + 1));
        }
        for ms in 2_000..3_000 {
            account.charge(3, 1_000, at(ms));
        }
        assert_eq!(account.until(), at(5_000), "3,000 units from 2 s on");
        assert_eq!([3_000, 5_000, 6_000].map(|ms| account.ahead(at(ms)).get()), [2_000_000_000, 0, 0]);
    }

    #[test]
    fn a_time_without_use_saves_no_credit() {
        let mut account = RateAccount::default();
        account.charge(1_000, 1_000, at(1_000));
        account.charge(1_000, 1_000, at(60_000));
        assert_eq!(account.until(), at(61_000));
    }

    #[test]
    fn a_charge_is_rounded_up_and_any_amount_and_rate_can_be_charged() {
        let mut account = RateAccount::default();
        account.charge(1, 3, Instant::ZERO);
        assert_eq!(account.until(), Instant::new(333_333_334));
        account.charge(1, 0, Instant::ZERO);
        assert_eq!(account.until(), Instant::new(1_333_333_334), "the least rate is 1");
        account.charge(u64::MAX, 1, Instant::ZERO);
        account.charge(u64::MAX, 1, Instant::ZERO);
        assert_eq!(account.until(), Instant::NEVER);
    }
}
