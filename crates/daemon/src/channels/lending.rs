//! Hosts lend CPU time, memory and rates out of their links to each other. When this host's broker refuses a request,
//! this host asks the others for a loan. When another host refuses a request, this host's
//! brokers keep capacity for it, as far as they have room.
//!
//! ```text
//! refused here ── borrow ──> manager ── Q-channel of the group `lend` ──> manager ── mailbox ──> control thread: kept
//! offer in the refusal <── mailbox <── Confirm ────────────────────────── manager <── ControlWord ───────┘
//! ```
//! A loan with a rate asks the thread of streams for the rate first (`net/lent.rs`).
//! Locks are taken one at a time; no lock is held while this code waits for the control thread.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use qfabric_channel::Registration;
use qfabric_host::manager::{Ask, Rule};
use qfabric_linux::clock;
use qfabric_sync::{Lock, rank};
use qfabric_types::api::{Claim, LoanRate, Offer, Problem};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::AttributeId;
use qfabric_types::{BitRate, Bytes, Contract, Instant, Nanos, Resource, Share};
use tokio::sync::oneshot;

use super::config::Lend;
use super::mailbox::{Lender, LendingMessage};
use super::offers::{Asked, Offered, Offers};
use super::{Channels, Fabric, Network, count, lock, problems};
use crate::api::answers::aside;
use crate::auth::Peer;
use crate::control::{ControlWord, Keep, Teller};
use crate::net::{LoanOrder, RateAnswer};
use crate::startup::DaemonError;

/// The group of all hosts that lend.
const GROUP: &str = "lend";
/// The attribute that is lent, in millionths of a CPU.
const CPU: AttributeId = AttributeId::of("cpu.guaranteed");
/// How long this host waits for offers.
const PATIENCE: Nanos = Nanos::from_millis(500);
/// Longest delay of a refusal: three chosen hosts that do not answer, one after the other.
const LONGEST: Nanos = Nanos::from_millis(2_700);
/// Resolution of the times in messages.
const TENTH: Nanos = Nanos::from_millis(100);
/// Largest number of requests under way; above this number, a request is refused without asking other hosts.
const WAITING: usize = 256;

/// Receives the lender of a request, or none.
type Reply = oneshot::Sender<Option<Lender>>;

/// Requests under way, and the offers that this host received.
pub(super) struct Lending {
    teller: Teller,
    words: Lock<Receiver<ControlWord>, { rank::LOAN_WORDS }>,
    /// Receivers of the answers to requests of this host, by the request's number.
    waiting: Lock<BTreeMap<u64, Reply>, { rank::WAITING }>,
    offers: Lock<Offers, { rank::OFFERS }>,
}

/// The kind of request that the broker refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// An application that asks for admission.
    Admission,
    /// A new contract for an admitted application, which keeps the old one. Another host needs room for all of the
    /// new contract.
    Change,
}

/// What the contract of a request needs on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoanNeeds {
    guaranteed: Option<Share>,
    memory: Bytes,
    /// Zero: none.
    rate: BitRate,
}

impl LoanNeeds {
    pub(crate) fn of(contract: &Contract) -> LoanNeeds {
        LoanNeeds { guaranteed: contract.guaranteed, memory: contract.memory, rate: BitRate::ZERO }
    }

    /// With a rate out of a link of the lender.
    pub(crate) fn with_rate(self, rate: BitRate) -> LoanNeeds {
        LoanNeeds { rate, ..self }
    }

    /// What to ask other hosts for after a refusal. `None`: no capacity was short, or the amount of CPU time is not
    /// known, because the memory was refused first and the contract names no guarantee.
    fn after(self, problem: &Problem) -> Option<Asked> {
        let LoanNeeds { guaranteed, memory, rate } = self;
        let short = problem.shortage.as_ref().map(|shortage| &shortage.resource);
        let share = problem.asked.or_else(|| guaranteed.filter(|_| short == Some(&Resource::Memory)))?;
        (problem.code == "over_committed").then_some(Asked { share, memory, rate })
    }
}

/// Result of asking other hosts for a loan.
enum Found {
    /// No host was asked.
    NotAsked,
    /// None of this number of hosts has room.
    Nobody(usize),
    Offer(Offer),
}

impl Lending {
    /// Messages of the control thread wake the thread that waits for `wake`.
    pub(super) fn new(wake: Arc<OwnedFd>) -> Lending {
        let (teller, words) = Teller::new(wake);
        Lending { teller, words: Lock::new(words), waiting: Lock::default(), offers: Lock::default() }
    }

    fn wait_for(&self, number: u64) -> Option<oneshot::Receiver<Option<Lender>>> {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= WAITING {
            return None;
        }
        let (tell, told) = oneshot::channel();
        waiting.insert(number, tell);
        Some(told)
    }

    /// A lender is gone, and its loans with it.
    pub(super) fn lender_gone(&self, host: &Name) {
        lock(&self.offers).gone(host);
    }

    /// A request of a policy has no receiver here; if the caller gave up, its receiver is gone.
    fn answered(&self, network: &Network, request: u64, lender: Option<Lender>) {
        let Some(tell) = lock(&self.waiting).remove(&request) else { return };
        if let Err(Some(Lender { host, .. })) = tell.send(lender) {
            network.cancel(&host, request);
        }
    }

    /// Sends messages of the control thread to this service.
    pub(super) fn teller(&self) -> Teller {
        self.teller.clone()
    }
}

impl Channels {
    /// Adds an offer of another host to the refusal, if lending is on and a host makes an offer.
    pub(crate) async fn look_elsewhere(
        &self,
        peer: Peer,
        kind: RequestKind,
        needs: LoanNeeds,
        problem: Problem,
    ) -> Problem {
        let (Some(fabric), Some(asked)) = (&self.fabric, needs.after(&problem)) else {
            return problem;
        };
        match fabric.borrow(peer, asked).await {
            Found::NotAsked => problem,
            Found::Nobody(hosts) => {
                let hosts = if hosts == 1 { "the other host".to_owned() } else { format!("{hosts} other hosts") };
                Problem { message: format!("{}; no room on {hosts} either", problem.message), ..problem }
            }
            Found::Offer(offer) => with_offer(kind, needs, problem, offer),
        }
    }
}

/// What the lender keeps, and what it does not keep of the needs: lenders of older versions know no memory and no rate.
fn kept_text(needs: LoanNeeds, offer: &Offer) -> String {
    let Offer { share, memory, rate, .. } = offer;
    let mut kept = vec![share.to_string()];
    kept.extend((*memory > Bytes::ZERO).then(|| format!("{memory} of memory")));
    kept.extend(rate.as_ref().map(LoanRate::to_string));
    let no_memory = (needs.memory > Bytes::ZERO && *memory == Bytes::ZERO).then_some("no memory");
    let no_rate = (needs.rate > BitRate::ZERO && rate.is_none()).then_some("no rate");
    let lacking: Vec<&str> = no_memory.into_iter().chain(no_rate).collect();
    let kept = kept.join(" and ");
    if lacking.is_empty() { kept } else { format!("{kept}, but {},", lacking.join(" and ")) }
}

/// `needs`: what the application asked for.
fn with_offer(kind: RequestKind, needs: LoanNeeds, problem: Problem, offer: Offer) -> Problem {
    let kept = kept_text(needs, &offer);
    let Offer { host, held_ns, claim, rate, .. } = &offer;
    let there = match kind {
        RequestKind::Admission => format!(
            "start it on host {host}, which keeps {kept} for it for {held_ns}, with the same options and \
             --claim {claim}"
        ),
        RequestKind::Change => format!(
            "move it to host {host}, which keeps {kept} for all of it for {held_ns}: start it there with the new \
             contract and --claim {claim}, then end it here"
        ),
    };
    let draw = |rate: &LoanRate| {
        format!("; there its stream draws the rate: qfabric net stream add {} --contract {claim}", rate.interface)
    };
    let stream = rate.as_ref().map(draw).unwrap_or_default();
    let next_step = format!("{there}{stream}; or {}", problem.next_step);
    Problem { next_step, offer: Some(Box::new(offer)), ..problem }
}

fn group() -> Name {
    GROUP.parse().expect("is a name")
}

fn channel() -> ChannelId {
    ChannelId { plane: Plane::Quality, name: format!("group.{GROUP}").parse().expect("is a name") }
}

/// A number that other processes cannot guess: a keyed hash, whose key comes from the kernel's random numbers.
fn random() -> u64 {
    RandomState::new().hash_one(clock::now().get())
}

impl Lend {
    fn rule(self) -> Option<Rule> {
        match self {
            Lend::Off | Lend::Give => None,
            Lend::First => Some(Rule::First),
            // Larger than any number of hosts, so that all offers that arrive in time are compared.
            Lend::Best => Some(Rule::BestOf(usize::MAX)),
            Lend::Nearest => Some(Rule::Nearest),
        }
    }
}

/// A request of a user that waits for an offer, until dropped: also if the caller gives up.
struct UnderWay {
    fabric: Arc<Fabric>,
    uid: u32,
}

impl UnderWay {
    /// `None`: the user has the largest number of offers and of such requests.
    fn begin(fabric: &Arc<Fabric>, uid: u32) -> Option<UnderWay> {
        let has_room = lock(&fabric.lending.offers).begin(uid, clock::now());
        has_room.then(|| UnderWay { fabric: fabric.clone(), uid })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.fabric.lending.offers).end(self.uid);
    }
}

impl Fabric {
    /// Joins the group of the lenders, if lending is configured.
    pub(super) fn begin_lending(&self) -> Result<(), DaemonError> {
        if self.config().lend == Lend::Off {
            return Ok(());
        }
        self.network.manager(|manager, _| manager.broker(CPU, channel()));
        let application = "qfabric".parse().expect("is a name");
        let member = Registration { application, group: group(), parent: None, level: 4, qos: Vec::new() };
        let joined = self.network.with(|node, now| node.register(member, now));
        joined.map(drop).map_err(|error| DaemonError::refused("channels.lend", error.problem()))
    }

    /// Asks the other hosts for a loan.
    async fn borrow(self: &Arc<Fabric>, peer: Peer, needed: Asked) -> Found {
        let Some(rule) = self.config().lend.rule() else { return Found::NotAsked };
        if let Some(offer) = self.offered_before(peer, needed) {
            return Found::Offer(offer);
        }
        let Some(_under_way) = UnderWay::begin(self, peer.owner.uid) else { return Found::NotAsked };
        let number = random();
        let Some(told) = self.lending.wait_for(number) else { return Found::NotAsked };
        let fabric = self.clone();
        // The call may wait for the node's lock.
        let asked = aside(move || Ok(fabric.ask(number, needed, rule))).await;
        let hosts = asked.unwrap_or(0);
        if hosts == 0 {
            lock(&self.lending.waiting).remove(&number);
            return Found::NotAsked;
        }
        match tokio::time::timeout(Duration::from_nanos(LONGEST.get()), told).await {
            Ok(Ok(Some(Lender { host: giver, memory, rate }))) => {
                let offered = Offered { giver, peer, asked: needed, memory, rate, until: Instant::ZERO };
                Found::Offer(self.offered(number, offered))
            }
            // A later answer finds no receiver, and the loan is given back.
            _ => Found::Nobody(hosts),
        }
    }

    /// Sends the request; returns the number of hosts asked.
    fn ask(&self, request: u64, needed: Asked, rule: Rule) -> usize {
        let group = group();
        let others = |node: &mut qfabric_channel::Node| {
            node.directory().hosts_of_group(&group).filter(|host| **host != self.network.host).count()
        };
        let others = self.network.look(others);
        if others > 0 {
            let Asked { share, memory, rate } = needed;
            let (amount, hold) = (share.ppm().into(), self.config().lend_hold + LONGEST);
            let (channel, patience) = (channel(), PATIENCE);
            let ask = Ask { request, channel, attribute: CPU, amount, memory, rate, rule, patience, hold };
            self.network.manager(|manager, now| manager.ask(ask, now));
        }
        others
    }

    /// The offer for a loan. The lender keeps the capacity slightly longer than stated here: the way to the lender
    /// takes time.
    fn offered(&self, number: u64, offered: Offered) -> Offer {
        let hold = self.config().lend_hold;
        let offered = Offered { until: clock::now() + hold, ..offered };
        lock(&self.lending.offers).add(number, offered.clone());
        self.offer(number, offered, hold)
    }

    fn offer(&self, number: u64, offered: Offered, held_ns: Nanos) -> Offer {
        let Offered { giver, asked, memory, rate, .. } = offered;
        Offer {
            host: giver,
            share: asked.share,
            memory,
            rate,
            held_ns,
            claim: Claim { host: self.network.host.clone(), number },
        }
    }

    /// An earlier offer to this process for the same amounts, if it is still valid.
    fn offered_before(&self, peer: Peer, needed: Asked) -> Option<Offer> {
        let now = clock::now();
        let (number, offered) = lock(&self.lending.offers).again(peer, needed, now)?;
        let left = offered.until.since(now).get();
        Some(self.offer(number, offered, Nanos::new(left - left % TENTH.get())))
    }

    /// Cancels a loan that the refused application does not need.
    pub(crate) fn give_back(&self, peer: Peer, claim: &Claim) -> Result<(), Problem> {
        let is_ours = claim.host == self.network.host;
        let giver = is_ours.then(|| lock(&self.lending.offers).give_back(claim.number, peer)).flatten();
        let giver = giver.ok_or_else(|| problems::not_offered(claim, &self.network.host))?;
        self.network.cancel(&giver, claim.number);
        Ok(())
    }

    /// Passes a manager's message about a loan to the broker, or records it.
    pub(super) fn lend(&self, lent: LendingMessage) {
        match lent {
            LendingMessage::Keep(order) => self.keep(order),
            // If the message is lost, the loan ends when its time runs out.
            LendingMessage::LetGo(claim) => {
                self.board.rates().let_go(&claim);
                if !self.requests.let_go(claim) {
                    count(&self.totals.notices_dropped);
                }
            }
            LendingMessage::Answered { request, lender } => self.lending.answered(&self.network, request, lender),
            LendingMessage::Taken { request, giver } => lock(&self.lending.offers).taken(request, &giver),
        }
    }

    fn keep(&self, order: LoanOrder) {
        if order.rate == BitRate::ZERO {
            return self.keep_with(order, None);
        }
        match self.board.rates().ask(&order) {
            RateAnswer::Held(rate) => self.keep_with(order, Some(rate)),
            RateAnswer::Refused => self.network.kept(&order.claim, None),
            RateAnswer::Later => {}
        }
    }

    /// Goes on with loans whose rates are held now. A loan without a rate is refused by the links of this host.
    pub(crate) fn rates_answered(&self, answers: Vec<(LoanOrder, Option<LoanRate>)>) {
        for (order, rate) in answers {
            match rate {
                Some(_) => self.keep_with(order, rate),
                None => self.network.kept(&order.claim, None),
            }
        }
    }

    /// Asks the control thread for the share and the memory of a loan.
    fn keep_with(&self, order: LoanOrder, rate: Option<LoanRate>) {
        let LoanOrder { claim, amount, memory, until, .. } = order;
        if let Some(rate) = &rate {
            self.network.kept_rate(&claim, rate.clone());
        }
        let share = Share::from_ppm(u32::try_from(amount).unwrap_or(u32::MAX));
        let teller = self.lending.teller.clone();
        if !self.requests.keep(Keep { claim: claim.clone(), share, memory, rate, until, teller }) {
            count(&self.totals.notices_dropped);
            tracing::warn!(host = %claim.host, %share, "the control thread is busy: the loan to another host is refused");
            self.refuse(&claim);
        }
    }

    /// The control thread does not keep a loan, so its rate is free, too.
    fn refuse(&self, claim: &Claim) {
        self.board.rates().let_go(claim);
        self.network.kept(claim, None);
    }

    /// Handles the control thread's messages about loans and contracts.
    pub(super) fn take_control_words(&self) {
        loop {
            let word = lock(&self.lending.words).try_recv();
            match word {
                Ok(ControlWord::Kept(claim, left)) => self.network.kept(&claim, Some(left)),
                Ok(ControlWord::Refused(claim)) => self.refuse(&claim),
                Ok(ControlWord::Used(claim, pid)) => {
                    self.board.rates().claimed(&claim, pid);
                    let Claim { host, number } = claim;
                    self.network.manager(|manager, now| manager.used(&host, number, now));
                }
                Ok(ControlWord::Granted(grant)) => self.report_grant(grant),
                Err(_) => return,
            }
        }
    }
}

impl Network {
    fn cancel(&self, giver: &Name, request: u64) {
        let channel = channel();
        self.manager(|manager, now| manager.give_back((&channel, giver), CPU, request, now));
    }

    fn kept_rate(&self, claim: &Claim, rate: LoanRate) {
        self.manager(|manager, _| manager.kept_rate((&claim.host, claim.number), rate));
    }

    fn kept(&self, claim: &Claim, left: Option<Share>) {
        let left = left.map(|left| left.ppm().into());
        self.manager(|manager, now| manager.kept((&claim.host, claim.number), left, now));
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::Amount;
    use qfabric_types::api::Shortage;

    use super::*;

    fn needs(memory: Bytes) -> LoanNeeds {
        LoanNeeds { guaranteed: None, memory, rate: BitRate::ZERO }
    }

    #[test]
    fn an_offer_names_the_link_of_its_rate_and_the_command_that_draws_from_it() {
        let (asked, claim) = (BitRate::new(2_000_000), "alpha:5f3c09a1d2e4b687".parse().unwrap());
        let rate = Some(LoanRate { interface: "eth0".parse().unwrap(), rate: asked });
        let (share, memory, held_ns) = (Share::from_ppm(500_000), Bytes::from_mib(64), Nanos::from_millis(30_000));
        let offer = Offer { host: "beta".parse().unwrap(), share, memory, rate, held_ns, claim };
        let needs = needs(memory).with_rate(asked);
        let said = |offer| with_offer(RequestKind::Admission, needs, Problem::default(), offer).next_step;
        let alone = said(Offer { memory: Bytes::ZERO, rate: None, ..offer.clone() });
        assert!(alone.contains("keeps 0.5 CPU, but no memory and no rate, for it"), "{alone}");
        assert!(!alone.contains("stream add"), "{alone}");
        let all = said(offer);
        for part in [
            "keeps 0.5 CPU and 64 MiB of memory and 2 Mbit/s out of eth0 for it",
            "--claim alpha:5f3c09a1d2e4b687; there its stream",
            "net stream add eth0 --contract alpha:5f3c09a1d2e4b687; or ",
        ] {
            assert!(all.contains(part), "{all} lacks {part}");
        }
    }

    #[test]
    fn an_offer_says_where_for_how_long_and_what_to_type() {
        let problem = Problem { next_step: "ask for less".to_owned(), ..Problem::default() };
        let claim: Claim = "alpha:5f3c09a1d2e4b687".parse().unwrap();
        let (share, held_ns) = (Share::from_ppm(500_000), Nanos::from_millis(30_000));
        let offer = Offer { host: "beta".parse().unwrap(), share, memory: Bytes::ZERO, rate: None, held_ns, claim };
        let said = with_offer(RequestKind::Admission, needs(Bytes::ZERO), problem.clone(), offer.clone());
        for part in ["host beta", "0.5 CPU", "30 s", "--claim alpha:5f3c09a1d2e4b687", "or ask for less"] {
            assert!(said.next_step.contains(part), "{said:?} lacks {part}");
        }
        assert_eq!(said.offer, Some(Box::new(offer.clone())));
        let said = with_offer(RequestKind::Change, needs(Bytes::ZERO), problem, offer);
        for part in
            ["move it to host beta", "for all of it", "with the new contract", "then end it here; or ask for less"]
        {
            assert!(said.next_step.contains(part), "{said:?} lacks {part}");
        }
    }

    #[test]
    fn an_offer_says_whether_the_memory_is_kept() {
        let (asked, claim) = (Bytes::from_mib(64), "alpha:5f3c09a1d2e4b687".parse().unwrap());
        let (share, held_ns) = (Share::from_ppm(500_000), Nanos::from_millis(30_000));
        let offer = Offer { host: "beta".parse().unwrap(), share, memory: asked, rate: None, held_ns, claim };
        let said = |offer| with_offer(RequestKind::Admission, needs(asked), Problem::default(), offer).next_step;
        let alone = said(Offer { memory: Bytes::ZERO, ..offer.clone() });
        assert!(alone.contains("keeps 0.5 CPU, but no memory, for it"), "{alone}");
        let both = said(offer);
        assert!(both.contains("keeps 0.5 CPU and 64 MiB of memory for it"), "{both}");
    }

    #[test]
    fn a_host_that_lacks_memory_asks_others_for_the_guarantee_as_well() {
        let (share, memory) = (Share::from_ppm(500_000), Bytes::from_mib(64));
        let short = |resource| {
            let [asked, rest] = [memory, Bytes::ZERO].map(Amount::Memory);
            let shortage = Some(Box::new(Shortage::new(resource, asked, rest, rest)));
            Problem { code: "over_committed".to_owned(), shortage, ..Problem::default() }
        };
        let rate = BitRate::new(2_000_000);
        let needs = LoanNeeds { guaranteed: Some(share), memory, rate };
        assert_eq!(needs.after(&short(Resource::Memory)), Some(Asked { share, memory, rate }));
        assert_eq!(needs.after(&short(Resource::Cpu)), None);
        assert_eq!(LoanNeeds { guaranteed: None, ..needs }.after(&short(Resource::Memory)), None);
        let over_cap = Problem { code: "user_cap".to_owned(), ..short(Resource::Memory) };
        assert_eq!(needs.after(&over_cap), None, "a limit is a decision, not a shortage");
    }

    #[test]
    fn numbers_of_claims_differ() {
        assert_ne!(random(), random());
    }
}
