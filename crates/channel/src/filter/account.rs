//! Limits the instructions that filters execute per second: one account for each user and for each other host.
//!
//! The longest call of a filter is bounded, but the number of events is not known in advance. An account holds the time
//! until which the rate covers all instructions so far:
//!
//! ```text
//!            charged: calls of the payer's filters
//!                 │        more than a second ahead of now
//!   open ─────────┴──────────────────────────────────────> suspended: no filter of the payer is called,
//!    ^                                                          │     events pass as if there were none
//!    └─────────── the rate covers all instructions ─────────────┘
//! ```
//! An account outlives its filters, so it does not help to install one again.

use std::collections::BTreeMap;

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use crate::SuspensionCounts;

/// The instructions of this time may be executed at once.
const WINDOW: Nanos = Nanos::from_millis(1_000);

/// Who is charged for the calls of a filter. The host's own filters and those of administrators have no account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Payer {
    /// A user of this host.
    User(u32),
    /// Another host, for all its users.
    Host(Name),
}

#[derive(Debug)]
pub(crate) struct Accounts {
    /// Instructions per second that all filters of one payer may execute.
    rate: u64,
    payers: BTreeMap<Payer, Account>,
    /// The time of the last charge.
    latest: Instant,
    pub counts: SuspensionCounts,
}

#[derive(Debug, Default)]
struct Account {
    /// The time until which the rate covers the instructions.
    covered: Instant,
    suspended: bool,
}

impl Accounts {
    pub(crate) fn new(rate: u64) -> Accounts {
        let (payers, counts) = Default::default();
        Accounts { rate: rate.max(1), payers, latest: Instant::ZERO, counts }
    }

    /// Opens an account, so that its first charge allocates no memory. Forgets accounts without recent use.
    pub(crate) fn open(&mut self, payer: &Payer) {
        let latest = self.latest;
        self.payers.retain(|_, account| account.covered > latest);
        self.payers.entry(payer.clone()).or_default();
    }

    /// Whether the payer's filters may be called; if not, counts an event that passes a filter without a call.
    pub(crate) fn admits(&mut self, payer: &Payer, now: Instant) -> bool {
        let Some(account) = self.payers.get_mut(payer).filter(|account| account.suspended) else { return true };
        account.suspended = account.covered > now;
        self.counts.skipped += u64::from(account.suspended);
        !account.suspended
    }

    /// Charges a call. Returns the end of the suspension if one begins.
    pub(crate) fn charge(&mut self, payer: &Payer, instructions: u64, now: Instant) -> Option<Instant> {
        self.latest = self.latest.max(now);
        let period = (u128::from(instructions) * 1_000_000_000).div_ceil(u128::from(self.rate));
        let period = Nanos::new(u64::try_from(period).unwrap_or(u64::MAX / 4));
        let account = match self.payers.get_mut(payer) {
            Some(account) => account,
            None => self.payers.entry(payer.clone()).or_default(),
        };
        account.covered = account.covered.max(now) + period;
        let begins = !account.suspended && account.covered.since(now) > WINDOW;
        account.suspended |= begins;
        self.counts.suspensions += u64::from(begins);
        begins.then_some(account.covered)
    }

    /// The end of the payer's suspension; `None`: the payer's filters are called.
    pub(crate) fn suspended_until(&self, payer: &Payer) -> Option<Instant> {
        self.payers.get(payer).filter(|account| account.suspended).map(|account| account.covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Payer = Payer::User(7);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    #[test]
    fn a_payer_at_the_rate_is_never_suspended_and_one_above_it_runs_no_more_than_the_rate() {
        let mut accounts = Accounts::new(1_000);
        assert!((0..10_000).all(|ms| accounts.charge(&ALICE, 1, at(ms)).is_none()));
        let mut executed = 0;
        for ms in 10_000..110_000 {
            if accounts.admits(&ALICE, at(ms)) {
                executed += 20;
                accounts.charge(&ALICE, 20, at(ms));
            }
        }
        assert!((99_000..=101_020).contains(&executed), "{executed} in 100 s at 1,000 a second");
        assert!(accounts.counts.suspensions > 40 && accounts.counts.skipped > 90_000, "{:?}", accounts.counts);
        assert!(accounts.admits(&Payer::User(8), at(110_000)), "each payer for itself");
    }

    #[test]
    fn a_suspension_ends_when_the_rate_covers_all_instructions_and_outlives_the_filters() {
        let mut accounts = Accounts::new(1_000);
        assert_eq!(accounts.charge(&ALICE, 1_500, at(10_000)), Some(at(11_500)));
        accounts.open(&ALICE);
        assert_eq!(accounts.suspended_until(&ALICE), Some(at(11_500)), "another filter does not help");
        assert!(!accounts.admits(&ALICE, at(11_499)) && accounts.admits(&ALICE, at(11_500)));
        assert_eq!(accounts.suspended_until(&ALICE), None);
        accounts.charge(&Payer::User(8), 1, at(20_000));
        accounts.open(&Payer::User(8));
        assert_eq!(accounts.payers.len(), 1, "accounts without recent use are forgotten");
    }
}
