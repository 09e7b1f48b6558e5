//! The rates of loans: an application that another host refused gets a rate out of a link of this host beside its CPU
//! time and its memory.
//!
//! ```text
//!   network thread: ask, let_go, claimed ──> LentRates <── qf-net, within 100 ms: held rates of the links
//!                   rates_answered <──────────────────────────┘
//! ```
//! No thread that carries events waits for the kernel: its orders lie here until the thread of streams carries them
//! out, as those of policies lie on the board. A rate ends at its time, or when the loan is cancelled. If an
//! application has claimed the loan, the rate ends with the application's process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use qfabric_linux::{clock, watch};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::net::HeldRateId;
use qfabric_types::api::{Claim, LoanRate};
use qfabric_types::{BitRate, Bytes, Direction, Instant, InterfaceName, LinkEnd, Owner};

use super::{HoldRequest, Net, State};

/// Rates of loans at the same time; the rate of a further loan is refused.
const MOST: usize = 256;

/// What this host is asked to keep for an application of another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoanOrder {
    pub claim: Claim,
    /// In millionths of a CPU.
    pub amount: i64,
    /// Zero: none.
    pub memory: Bytes,
    /// Out of a link of this host. Zero: none.
    pub rate: BitRate,
    pub until: Instant,
}

/// The answer to a loan that needs a rate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RateAnswer {
    /// The loan has its rate, and keeps it until the time of the order.
    Held(LoanRate),
    Refused,
    /// The thread of streams answers.
    Later,
}

/// The rates of loans by claim.
#[derive(Default)]
pub(crate) struct LentRates(Lock<BTreeMap<Claim, LoanState>, { rank::LENT_RATES }>);

#[derive(Debug)]
enum LoanState {
    Asked(LoanOrder),
    Held { id: HeldRateId, rate: LoanRate, end: End },
}

#[derive(Debug)]
enum End {
    At(Instant),
    With(watch::Process),
}

impl LoanState {
    fn is_over(&self, now: Instant) -> bool {
        match self {
            LoanState::Asked(order) => order.until <= now,
            LoanState::Held { end: End::At(until), .. } => *until <= now,
            LoanState::Held { end: End::With(process), .. } => process.ended(),
        }
    }
}

impl LentRates {
    /// Asks for the rate of a loan, or extends a loan that has its rate.
    pub(crate) fn ask(&self, order: &LoanOrder) -> RateAnswer {
        let mut all = self.0.lock();
        let is_full = all.len() >= MOST;
        match all.entry(order.claim.clone()) {
            Entry::Occupied(mut entry) => match entry.get_mut() {
                LoanState::Asked(asked) => {
                    asked.until = order.until;
                    RateAnswer::Later
                }
                LoanState::Held { rate, end, .. } => {
                    if let End::At(until) = end {
                        *until = order.until;
                    }
                    RateAnswer::Held(rate.clone())
                }
            },
            Entry::Vacant(_) if is_full => RateAnswer::Refused,
            Entry::Vacant(entry) => {
                entry.insert(LoanState::Asked(order.clone()));
                RateAnswer::Later
            }
        }
    }

    /// The loan is cancelled. Its rate is freed by the thread of streams, unless an application has claimed the loan.
    pub(crate) fn let_go(&self, claim: &Claim) {
        let mut all = self.0.lock();
        match all.get_mut(claim) {
            Some(LoanState::Asked(_)) => drop(all.remove(claim)),
            Some(LoanState::Held { end: End::At(until), .. }) => *until = Instant::ZERO,
            _ => {}
        }
    }

    /// An application has claimed the loan: its rate lives as long as the application's process.
    pub(crate) fn claimed(&self, claim: &Claim, pid: i32) {
        let process = watch::Process::watch(pid).map_or(End::At(Instant::ZERO), End::With);
        let mut all = self.0.lock();
        if let Some(LoanState::Held { end, .. }) = all.get_mut(claim) {
            *end = process;
        }
    }

    /// The held rate of a loan on this link.
    pub(crate) fn of(&self, claim: &Claim, interface: &InterfaceName) -> Option<HeldRateId> {
        let all = self.0.lock();
        match all.get(claim) {
            Some(LoanState::Held { id, rate, .. }) if rate.interface == *interface => Some(*id),
            _ => None,
        }
    }

    /// Removes the loans that are over; returns their held rates.
    fn take_over(&self, now: Instant) -> Vec<HeldRateId> {
        let mut over = Vec::new();
        self.0.lock().retain(|_, lent| {
            let is_over = lent.is_over(now);
            if let (true, LoanState::Held { id, .. }) = (is_over, &*lent) {
                over.push(*id);
            }
            !is_over
        });
        over
    }

    /// The loans that wait for their rates.
    fn waiting(&self) -> Vec<LoanOrder> {
        let waits = |lent: &LoanState| if let LoanState::Asked(order) = lent { Some(order.clone()) } else { None };
        self.0.lock().values().filter_map(waits).collect()
    }

    /// Records the outcome for a loan that waits; `None`: refused. Returns the loan as it is now, or nothing if it was
    /// cancelled in between.
    fn record(&self, claim: &Claim, held: Option<&(HeldRateId, LoanRate)>) -> Option<LoanOrder> {
        let mut all = self.0.lock();
        let Some(LoanState::Asked(order)) = all.remove(claim) else { return None };
        if let Some((id, rate)) = held {
            let held = LoanState::Held { id: *id, rate: rate.clone(), end: End::At(order.until) };
            all.insert(claim.clone(), held);
        }
        Some(order)
    }
}

impl Net {
    /// Frees the rates of loans that are over, and asks the links for the rates of loans that wait. Returns the loans
    /// with their rates; a loan without one is refused.
    pub(super) fn lend(&self, state: &mut State) -> Vec<(LoanOrder, Option<LoanRate>)> {
        let rates = self.board.rates();
        for id in rates.take_over(clock::now()) {
            state.release(id);
        }
        let mut answers = Vec::new();
        for order in rates.waiting() {
            let held = state.lend(&order);
            match (rates.record(&order.claim, held.as_ref()), held) {
                (Some(order), held) => answers.push((order, held.map(|(_, rate)| rate))),
                (None, Some((id, _))) => state.release(id),
                (None, None) => {}
            }
        }
        answers
    }
}

impl State {
    /// Holds the rate of a loan on the open link with the most free capacity that has room for it.
    fn lend(&mut self, order: &LoanOrder) -> Option<(HeldRateId, LoanRate)> {
        let open = self.attached.iter().filter(|(_, entry)| entry.opened.is_some());
        let mut links: Vec<_> = open.map(|(name, entry)| (entry.broker.free(), name.clone())).collect();
        links.sort_unstable();
        let (rate, name) = (order.rate, format!("loan to {}", order.claim.host));
        links.into_iter().rev().find_map(|(_, interface)| {
            let interface: InterfaceName = interface.parse().ok()?;
            let end = LinkEnd { interface: interface.clone(), direction: Direction::Out };
            let (owner, name) = (Owner::NOBODY, name.as_str());
            let request = HoldRequest { owner, groups: &[], end: &end, wanted: rate, least: rate, name };
            let (id, _) = self.hold(request).ok()?;
            Some((id, LoanRate { interface, rate }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use qfabric_types::Nanos;

    use super::super::site::{ROOT, Site, site, stream};
    use super::*;

    fn mbit(rate: u64) -> BitRate {
        BitRate::new(rate * 1_000_000)
    }

    /// A loan of this rate for a minute.
    fn order(number: u64, rate: BitRate) -> LoanOrder {
        let claim = Claim { host: "alpha".parse().unwrap(), number };
        let until = clock::now() + Nanos::from_millis(60_000);
        LoanOrder { claim, amount: 300_000, memory: Bytes::ZERO, rate, until }
    }

    /// Gives orders and carries them out, before the thread of streams can do so.
    fn carry_out(site: &Site, give: impl FnOnce(&LentRates)) -> Vec<(LoanOrder, Option<LoanRate>)> {
        let mut state = site.net.state();
        give(site.net.board.rates());
        site.net.lend(&mut state)
    }

    fn promised(site: &Site) -> BitRate {
        site.net.show("qf5").unwrap().link.unwrap().promised_bps
    }

    #[test]
    fn orders_are_bounded_and_a_cancelled_one_is_forgotten() {
        let rates = LentRates::default();
        for number in 0..MOST as u64 {
            assert_eq!(rates.ask(&order(number, mbit(1))), RateAnswer::Later);
        }
        assert_eq!(rates.ask(&order(1_000, mbit(1))), RateAnswer::Refused);
        let first = order(0, mbit(1));
        rates.let_go(&first.claim);
        assert_eq!(rates.record(&first.claim, None), None);
        assert_eq!(rates.ask(&order(1_000, mbit(1))), RateAnswer::Later);
        assert_eq!(rates.waiting().len(), MOST);
    }

    #[test]
    fn the_rate_of_a_loan_is_held_on_an_open_link_until_the_loan_ends() {
        let Some(site) = &site() else { return };
        let (small, large) = (order(1, mbit(3)), order(2, mbit(9)));
        let answers = carry_out(site, |rates| {
            assert_eq!((rates.ask(&small), rates.ask(&large)), (RateAnswer::Later, RateAnswer::Later));
        });
        let (interface, rate): (InterfaceName, _) = ("qf5".parse().unwrap(), mbit(3));
        let kept = LoanRate { interface: interface.clone(), rate };
        assert_eq!(answers, [(small.clone(), Some(kept.clone())), (large, None)], "3 and 9 of 10 Mbit/s");
        let rates = site.net.board.rates();
        assert_eq!((rates.ask(&small), promised(site)), (RateAnswer::Held(kept), mbit(3)));
        let id = rates.of(&small.claim, &interface).unwrap();
        assert_eq!(rates.of(&small.claim, &"qf6".parse().unwrap()), None);
        let drawn = site.links.begin(ROOT, id, &stream(1, mbit(2))).unwrap();
        assert_eq!((drawn.promise.held_rate, promised(site)), (Some(id), mbit(3)));
        carry_out(site, |rates| rates.let_go(&small.claim));
        assert_eq!((promised(site), site.net.show("qf5").unwrap().streams.len()), (BitRate::ZERO, 0));
        assert_eq!(rates.of(&small.claim, &interface), None);
    }

    #[test]
    fn the_rate_of_a_claimed_loan_lives_as_long_as_the_process() {
        let Some(site) = &site() else { return };
        let order = order(1, mbit(3));
        carry_out(site, |rates| assert_eq!(rates.ask(&order), RateAnswer::Later));
        let mut program = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(program.id()).unwrap();
        carry_out(site, |rates| {
            rates.claimed(&order.claim, pid);
            // The lender's own account of the loan ends with the claim.
            rates.let_go(&order.claim);
        });
        assert_eq!(promised(site), mbit(3));
        program.kill().unwrap();
        program.wait().unwrap();
        carry_out(site, |_| {});
        assert_eq!(promised(site), BitRate::ZERO);
    }

    #[test]
    fn a_loan_whose_time_is_over_before_its_rate_is_held_is_forgotten() {
        let rates = LentRates::default();
        rates.ask(&LoanOrder { until: Instant::ZERO, ..order(1, mbit(1)) });
        assert!(rates.take_over(clock::now()).is_empty() && rates.waiting().is_empty());
    }
}
