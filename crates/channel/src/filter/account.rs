//! Limits the instructions that filters execute per second: one account for each user and for each other host.
//!
//! The longest call of a filter is bounded, but the number of events is not known in advance. A [`RateAccount`] holds
//! the time until which the rate covers all instructions so far:
//!
//! ```text
//!            charged: calls of the payer's filters
//!                 │        more than a second ahead of now
//!   open ─────────┴──────────────────────────────────────> suspended: filters of the payer are called only for the
//!    ^                                                          │     events of senders below the mean
//!    └─────────── the rate covers all instructions ─────────────┘
//! ```
//! An account outlives its filters, so it does not help to install one again.
//!
//! A filter that is not called lets nothing pass, like one that faults: it may be there to protect its sinks. So that a
//! sender of very many events does not stop the events of others by this, an account counts the instructions that the
//! events of each sender caused, as far as the rate does not cover them yet. While the account is suspended, the
//! filters are not called for events of senders that caused the mean of all senders or more, and are called for the
//! events of the others.
//! Therefore the instructions before a suspension ends are at most those of one window for each sender, and in the long
//! run no more than the rate.

use std::collections::BTreeMap;

use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, RateAccount};

use crate::SuspensionCounts;

/// The instructions of this time may be executed at once.
const WINDOW: Nanos = Nanos::from_millis(1_000);
/// Senders that an account knows one by one; further ones count as one.
const SENDERS: usize = 64;

/// Who is charged for the calls of a filter. The host's own filters and those of administrators have no account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Payer {
    /// A user of this host.
    User(u32),
    /// Another host, for all its users.
    Host(Name),
}

/// Who submitted an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender<'a> {
    /// A user of this host.
    User(u32),
    /// Another host, for all its users; or this host itself.
    Host(&'a Name),
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
    covered: RateAccount,
    suspended: bool,
    causes: Vec<Cause>,
}

/// The instructions that the events of one sender caused and that the rate does not cover yet.
#[derive(Debug)]
struct Cause {
    /// A user of this host, or a host, in the form of a payer.
    sender: Payer,
    instructions: u64,
}

impl Accounts {
    pub(crate) fn new(rate: u64) -> Accounts {
        let (payers, counts) = Default::default();
        Accounts { rate: rate.max(1), payers, latest: Instant::ZERO, counts }
    }

    /// Holds for charges from now on; suspensions last as long as they were said to.
    pub(crate) fn set_rate(&mut self, rate: u64) {
        self.rate = rate.max(1);
    }

    /// Opens an account, so that charges for the events of this host's users allocate no memory. Forgets accounts
    /// without recent use.
    pub(crate) fn open(&mut self, payer: &Payer) {
        let latest = self.latest;
        self.payers.retain(|_, account| account.covered.until() > latest);
        self.payers.entry(payer.clone()).or_default().causes.reserve(SENDERS);
    }

    /// Whether the payer's filters may be called for an event; if not, counts the event.
    pub(crate) fn admits(&mut self, payer: &Payer, sender: Sender<'_>, now: Instant) -> bool {
        let Some(account) = self.payers.get_mut(payer).filter(|account| account.suspended) else { return true };
        account.suspended = account.covered.until() > now;
        let admits = !account.suspended || account.is_below_mean(sender);
        self.counts.skipped += u64::from(!admits);
        admits
    }

    /// Charges a call. Returns the end of the suspension if one begins.
    pub(crate) fn charge(
        &mut self,
        payer: &Payer,
        sender: Sender<'_>,
        instructions: u64,
        now: Instant,
    ) -> Option<Instant> {
        self.latest = self.latest.max(now);
        let rate = self.rate;
        let account = match self.payers.get_mut(payer) {
            Some(account) => account,
            None => self.payers.entry(payer.clone()).or_default(),
        };
        if !account.suspended || account.covered.until() <= now {
            account.forget_covered(rate, now);
        }
        *account.caused_by(sender) += instructions;
        account.covered.charge(instructions, rate, now);
        let begins = !account.suspended && account.covered.ahead(now) > WINDOW;
        account.suspended |= begins;
        self.counts.suspensions += u64::from(begins);
        begins.then_some(account.covered.until())
    }

    /// The end of the payer's suspension; `None`: the payer's filters are called.
    pub(crate) fn suspended_until(&self, payer: &Payer) -> Option<Instant> {
        self.payers.get(payer).filter(|account| account.suspended).map(|account| account.covered.until())
    }
}

impl Account {
    /// Keeps, of the instructions of each sender, the part that the rate does not cover yet.
    fn forget_covered(&mut self, rate: u64, now: Instant) {
        let left = u128::from(self.covered.ahead(now).get()) * u128::from(rate) / 1_000_000_000;
        let all: u128 = self.causes.iter().map(|cause| u128::from(cause.instructions)).sum();
        if left < all {
            for cause in &mut self.causes {
                cause.instructions = (u128::from(cause.instructions) * left / all) as u64;
            }
        }
    }

    /// The place of the sender's instructions: its own, else one that is not in use, else the last one.
    fn caused_by(&mut self, sender: Sender<'_>) -> &mut u64 {
        let own = self.causes.iter().position(|cause| sender.is(&cause.sender));
        let at = match own.or_else(|| self.causes.iter().position(|cause| cause.instructions == 0)) {
            Some(at) => at,
            None if self.causes.len() < SENDERS => {
                self.causes.push(Cause { sender: sender.owned(), instructions: 0 });
                self.causes.len() - 1
            }
            None => SENDERS - 1,
        };
        let cause = &mut self.causes[at];
        if cause.instructions == 0 && own.is_none() {
            cause.sender = sender.owned();
        }
        &mut cause.instructions
    }

    /// Whether the sender's events caused fewer instructions than the mean of all senders.
    fn is_below_mean(&self, sender: Sender<'_>) -> bool {
        let all: u64 = self.causes.iter().map(|cause| cause.instructions).sum();
        let senders = self.causes.iter().filter(|cause| cause.instructions > 0).count() as u64;
        let own = self.causes.iter().find(|cause| sender.is(&cause.sender));
        let is_full = self.causes.len() >= SENDERS && self.causes.iter().all(|cause| cause.instructions > 0);
        let shared = self.causes.last().filter(|_| is_full);
        own.or(shared).is_none_or(|cause| cause.instructions.saturating_mul(senders) < all)
    }
}

impl<'a> Sender<'a> {
    /// The sender of an event of this host: the user of its source, or else the host itself.
    pub(crate) fn of(user: Option<u32>, host: &'a Name) -> Sender<'a> {
        user.map_or(Sender::Host(host), Sender::User)
    }

    fn is(self, other: &Payer) -> bool {
        match (self, other) {
            (Sender::User(uid), Payer::User(other)) => uid == *other,
            (Sender::Host(name), Payer::Host(other)) => name == other,
            _ => false,
        }
    }

    fn owned(self) -> Payer {
        match self {
            Sender::User(uid) => Payer::User(uid),
            Sender::Host(name) => Payer::Host(name.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Payer = Payer::User(7);
    const BOB: Sender<'static> = Sender::User(8);
    const CAROL: Sender<'static> = Sender::User(9);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    #[test]
    fn a_payer_at_the_rate_is_never_suspended_and_one_above_it_runs_no_more_than_the_rate() {
        let mut accounts = Accounts::new(1_000);
        assert!((0..10_000).all(|ms| accounts.charge(&ALICE, BOB, 1, at(ms)).is_none()));
        let mut executed = 0;
        for ms in 10_000..110_000 {
            if accounts.admits(&ALICE, BOB, at(ms)) {
                executed += 20;
                accounts.charge(&ALICE, BOB, 20, at(ms));
            }
        }
        assert!((99_000..=101_020).contains(&executed), "{executed} in 100 s at 1,000 a second");
        assert!(accounts.counts.suspensions > 40 && accounts.counts.skipped > 90_000, "{:?}", accounts.counts);
        assert!(accounts.admits(&Payer::User(8), BOB, at(110_000)), "each payer for itself");
    }

    /// Bob's events cause 20 times the rate, Carol's 0.3 times.
    #[test]
    fn a_sender_of_many_events_stops_only_its_own_and_all_together_run_no_more_than_the_rate() {
        let mut accounts = Accounts::new(1_000);
        let (mut executed, mut refused) = (0, 0);
        for ms in 0..100_000 {
            let mut send = |sender, instructions| {
                let admitted = accounts.admits(&ALICE, sender, at(ms));
                if admitted {
                    executed += instructions;
                    accounts.charge(&ALICE, sender, instructions, at(ms));
                }
                admitted
            };
            send(BOB, 20);
            refused += u32::from(ms % 10 == 0 && !send(CAROL, 3));
        }
        assert_eq!(refused, 0, "of Carol's 10,000 events");
        assert!((99_000..=103_000).contains(&executed), "{executed} in 100 s at 1,000 a second");
    }

    #[test]
    fn instructions_that_the_rate_has_covered_do_not_count_against_a_sender() {
        let mut accounts = Accounts::new(1_000);
        accounts.charge(&ALICE, CAROL, 500, at(10_000));
        assert!((10_001..110_000).all(|ms| accounts.charge(&ALICE, CAROL, 1, at(ms)).is_none()));
        assert!(accounts.charge(&ALICE, BOB, 600, at(110_000)).is_some());
        assert!(accounts.admits(&ALICE, CAROL, at(110_000)) && !accounts.admits(&ALICE, BOB, at(110_000)));
    }

    #[test]
    fn senders_that_an_account_does_not_know_one_by_one_share_a_place() {
        let mut accounts = Accounts::new(1_000);
        let names: Vec<Name> = (0..200).map(|number| format!("h{number}").parse().unwrap()).collect();
        for name in &names {
            accounts.charge(&ALICE, Sender::Host(name), 10, at(10_000));
        }
        let admits = |accounts: &mut Accounts, name| accounts.admits(&ALICE, Sender::Host(name), at(10_001));
        assert!(admits(&mut accounts, &names[0]) && admits(&mut accounts, &names[SENDERS - 2]));
        assert!(!admits(&mut accounts, &names[SENDERS - 1]) && !admits(&mut accounts, &names[199]));
        accounts.charge(&ALICE, Sender::Host(&names[199]), 1, at(13_000));
        let causes = &accounts.payers[&ALICE].causes;
        assert_eq!(causes.len(), SENDERS);
        assert!(Sender::Host(&names[199]).is(&causes[0].sender), "the account was covered, so all places are free");
    }

    #[test]
    fn a_suspension_ends_when_the_rate_covers_all_instructions_and_outlives_the_filters() {
        let mut accounts = Accounts::new(1_000);
        assert_eq!(accounts.charge(&ALICE, BOB, 1_500, at(10_000)), Some(at(11_500)));
        accounts.open(&ALICE);
        assert_eq!(accounts.suspended_until(&ALICE), Some(at(11_500)), "another filter does not help");
        assert!(!accounts.admits(&ALICE, BOB, at(11_499)) && accounts.admits(&ALICE, BOB, at(11_500)));
        assert_eq!(accounts.suspended_until(&ALICE), None);
        accounts.charge(&Payer::User(8), BOB, 1, at(20_000));
        accounts.open(&Payer::User(8));
        assert_eq!(accounts.payers.len(), 1, "accounts without recent use are forgotten");
    }
}
