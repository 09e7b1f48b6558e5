//! Limits the CPU time of each user's handlers: one account for each user.
//!
//! The instruction limit bounds one event, but the number of events is not known in advance. So run time is
//! measured: by the programs in the kernel, and by the clocks of the threads in the daemon. A [`RateAccount`] holds the
//! time until which the user's share covers all CPU time so far:
//!
//! ```text
//!            charged: handlers that run, and handlers that end
//!                 │        more than a second ahead of now
//!   open ─────────┴──────────────────────────────────────────> suspended: handlers in the kernel are removed,
//!    ^                                                             │      new ones are refused
//!    └─────────────────── the share covers all use ────────────────┘
//! ```
//! An account outlives its user's subscriptions, so it does not help to end one and to install it again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qfabric_types::{Instant, Nanos, RateAccount, Share};

use super::subscription::Subscription;

/// The share of this time may be taken at once; reports show the use in this time.
const WINDOW: Nanos = Nanos::from_millis(1_000);

/// The CPU time of all users' handlers. Root has no limit and no account.
#[derive(Debug)]
pub(crate) struct Accounts {
    most: Share,
    /// Up to this time all use is charged.
    charged: Instant,
    window_began: Instant,
    users: BTreeMap<u32, Account>,
}

/// The CPU time of one user's handlers.
#[derive(Debug, Default)]
struct Account {
    covered: RateAccount,
    suspended: bool,
    /// CPU time in the window that has not ended.
    in_window: Nanos,
    /// The share that the user's handlers took in the last complete window.
    used: Share,
}

/// A user whose handlers are to be suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspension {
    pub uid: u32,
    /// The time until the share covers the use.
    pub lasts: Nanos,
    most: Share,
}

impl Suspension {
    /// Why a handler of the user is removed or refused.
    pub(super) fn why(&self) -> String {
        format!(
            "the handlers of user {} took more CPU time than {} (ecalls.max_cpu_per_user); the share covers it in {}",
            self.uid, self.most, self.lasts
        )
    }
}

impl Default for Accounts {
    fn default() -> Accounts {
        Accounts::new(Share::from_ppm(1_000_000))
    }
}

impl Accounts {
    /// Handlers of one user may take a share of `most`.
    pub(super) fn new(most: Share) -> Accounts {
        Accounts { most, charged: Instant::ZERO, window_began: Instant::ZERO, users: BTreeMap::new() }
    }

    /// From now on handlers of one user may take a share of `most`.
    pub(super) fn set_most(&mut self, most: Share) {
        self.most = most;
    }

    /// Charges CPU time that the user's handlers took since the last judgement.
    pub(super) fn charge(&mut self, uid: u32, took: Nanos, now: Instant) {
        if uid == 0 || took == Nanos::ZERO {
            return;
        }
        // A late judgement makes use look dense; without subscriptions there is none, and no credit is saved.
        let began = self.charged.max(now - WINDOW);
        let account = self.users.entry(uid).or_default();
        // Nanoseconds of CPU time per second.
        account.covered.charge(took.get(), u64::from(self.most.ppm().max(1)) * 1_000, began);
        account.in_window += took;
    }

    /// The users whose handlers are to be removed now. Begins and ends suspensions, and forgets accounts without use.
    pub(super) fn judge(&mut self, now: Instant) -> Vec<Suspension> {
        self.charged = now;
        let window = now.since(self.window_began);
        if window >= WINDOW {
            self.window_began = now;
            self.users.values_mut().for_each(|account| account.end_window(window));
        }
        let most = self.most;
        let mut found = Vec::new();
        for (uid, account) in &mut self.users {
            let lasts = account.covered.ahead(now);
            account.suspended = account.is_suspended(now);
            // Also during a suspension: a handler may have been installed just when the last one ended.
            if lasts > WINDOW {
                found.push(Suspension { uid: *uid, lasts, most });
            }
        }
        self.users.retain(|_, account| account.covered.ahead(now) > Nanos::ZERO || account.is_shown());
        found
    }

    /// The user's suspension, if there is one.
    pub(super) fn suspension(&self, uid: u32, now: Instant) -> Option<Suspension> {
        let account = self.users.get(&uid)?;
        let lasts = account.covered.ahead(now);
        account.is_suspended(now).then_some(Suspension { uid, lasts, most: self.most })
    }

    /// The share that the user's handlers took in the last complete window.
    fn used(&self, uid: u32) -> Share {
        self.users.get(&uid).map_or(Share::ZERO, |account| account.used)
    }

    /// Charges the CPU time of all subscriptions since their last charge, and judges. `readings`: their run times.
    pub(super) fn judge_all(&mut self, now: Instant, readings: &[(Arc<Subscription>, u64)]) -> Vec<Suspension> {
        for (subscription, run_ns) in readings {
            self.charge(subscription.terms.owner.uid, subscription.tally.not_charged(*run_ns), now);
        }
        let suspended = self.judge(now);
        for (subscription, _) in readings {
            let used = self.used(subscription.terms.owner.uid);
            subscription.tally.used_by_owner.store(used.ppm(), Ordering::Relaxed);
        }
        suspended
    }
}

impl Account {
    /// A suspension begins when the account is a second ahead, and ends when the share covers all use.
    fn is_suspended(&self, now: Instant) -> bool {
        self.covered.ahead(now) > if self.suspended { Nanos::ZERO } else { WINDOW }
    }

    /// Whether reports still need the account.
    fn is_shown(&self) -> bool {
        self.used > Share::ZERO || self.in_window > Nanos::ZERO
    }

    fn end_window(&mut self, window: Nanos) {
        let ppm = u128::from(self.in_window.get()) * 1_000_000 / u128::from(window.get().max(1));
        (self.used, self.in_window) = (Share::from_ppm(ppm.min(1 << 31) as u32), Nanos::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    /// Charges user 7 and judges; returns the users who are suspended now.
    fn turn(accounts: &mut Accounts, now: u64, took_ms: u64) -> Vec<u32> {
        accounts.charge(7, Nanos::from_millis(took_ms), at(now));
        accounts.judge(at(now)).into_iter().map(|suspension| suspension.uid).collect()
    }

    fn tenth_of_a_cpu() -> Accounts {
        Accounts::new(Share::from_ppm(100_000))
    }

    #[test]
    fn a_user_at_the_limit_is_never_suspended_and_one_above_it_is() {
        let mut accounts = tenth_of_a_cpu();
        let none: [u32; 0] = [];
        (100..200).for_each(|turns| assert_eq!(turn(&mut accounts, turns * 100, 10), none));
        assert_eq!(accounts.used(7), Share::from_ppm(100_000));
        assert_eq!(turn(&mut accounts, 20_900, 100), none, "a second's share at once, after a late judgement");
        let found: Vec<_> = (210..230).filter(|turns| turn(&mut accounts, turns * 100, 30) == [7]).collect();
        assert_eq!(found.first(), Some(&215), "20 ms above the limit in each turn, and 100 ms at once are allowed");
        assert!(accounts.suspension(8, at(23_000)).is_none(), "each user for itself");
        accounts.charge(0, Nanos::from_millis(5_000), at(23_000));
        assert!(accounts.suspension(0, at(23_000)).is_none(), "root has no limit");
    }

    /// Whatever is installed after a suspension, the use never exceeds the share by more than what was measured at
    /// once.
    #[test]
    fn a_user_who_installs_again_after_each_removal_takes_no_more_than_the_share() {
        let (mut accounts, mut taken) = (tenth_of_a_cpu(), 0);
        let mut refused = 0;
        for turns in 10..6_010 {
            let now = turns * 100;
            // Each handler takes a whole CPU until the next judgement, then ends by itself.
            match accounts.suspension(7, at(now)) {
                None => {
                    taken += 100;
                    accounts.charge(7, Nanos::from_millis(100), at(now));
                }
                Some(suspension) => {
                    refused += 1;
                    assert!(suspension.why().contains("ecalls.max_cpu_per_user"), "{}", suspension.why());
                }
            }
            accounts.judge(at(now));
        }
        assert!((50_000..=60_300).contains(&taken), "{taken} ms in 600 s");
        assert!(refused > 5_000, "{refused}");
    }

    #[test]
    fn an_account_is_open_again_when_the_share_covers_the_use_and_is_then_forgotten() {
        let mut accounts = tenth_of_a_cpu();
        assert_eq!(turn(&mut accounts, 10_000, 300), [7]);
        let lasts = accounts.suspension(7, at(10_000)).unwrap().lasts;
        assert_eq!(lasts, Nanos::from_millis(2_000), "300 ms at a tenth, from a second before");
        assert!(accounts.suspension(7, at(11_999)).is_some() && accounts.suspension(7, at(12_000)).is_none());
        accounts.judge(at(12_000));
        assert_eq!(turn(&mut accounts, 12_100, 90), [0; 0], "a new second's share");
        accounts.judge(at(14_000));
        accounts.judge(at(16_000));
        assert!(accounts.users.is_empty());
    }
}
