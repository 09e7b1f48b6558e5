//! Keeps capacity, and memory, for applications that other hosts refused (loans).
//!
//! Managers of other hosts request loans through the threads of the channels. Answers go back through a bounded
//! queue and an eventfd, so that the control thread waits for no other thread. Each loan ends when its time runs
//! out, even without a message.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use qfabric_host::Input;
use qfabric_types::api::{Claim, HostStatus, Loan, LoanRate};
use qfabric_types::{AppId, Bytes, Instant, Owner, Share};

use super::core::Answer;
use super::engine::Engine;
use super::joint::id_of;
use super::notes::Note;
use super::sources::wake;

/// Loans at the same time; a request beyond is refused.
const MOST: usize = 64;
/// Messages that may wait: enough for all loans and all requests. A further message is lost: its loan ends when its
/// time runs out, and its policy decides as if its decision were carried out.
const WORDS: usize = 256;

/// A request to keep `share` and `memory` until `until`, or to extend the loan of the same claim until `until`.
pub(crate) struct Keep {
    pub claim: Claim,
    pub share: Share,
    /// Zero: none.
    pub memory: Bytes,
    /// The rate that the links of this host hold for the loan; for the status.
    pub rate: Option<LoanRate>,
    pub until: Instant,
    pub teller: Teller,
}

/// A message of the control thread to the threads of the channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlWord {
    /// The loan is granted; the share is the capacity that is still free.
    Kept(Claim, Share),
    Refused(Claim),
    /// An application of this process claimed the loan.
    Used(Claim, i32),
    /// The outcome of a policy's decision about a contract.
    Granted(Grant),
}

/// What an application is guaranteed after a decision of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The number by which the policy knows the application.
    pub member: AppId,
    /// The share without any decision, which no decision lowers.
    pub own: Share,
    pub granted: Share,
}

/// Sends messages to the threads of the channels. Never blocks.
#[derive(Clone)]
pub(crate) struct Teller {
    queue: SyncSender<ControlWord>,
    wake: Arc<OwnedFd>,
}

impl Teller {
    /// Creates the queue; `wake` wakes its reader.
    pub(crate) fn new(wake: Arc<OwnedFd>) -> (Teller, Receiver<ControlWord>) {
        let (queue, receiver) = sync_channel(WORDS);
        (Teller { queue, wake }, receiver)
    }

    pub(crate) fn tell(&self, word: ControlWord) {
        // Fails if the queue is full or the reader is gone. Then the message is lost.
        if self.queue.try_send(word).is_ok() {
            wake(&*self.wake);
        }
    }
}

struct Kept {
    app: AppId,
    share: Share,
    memory: Bytes,
    rate: Option<LoanRate>,
    until: Instant,
    teller: Teller,
}

/// The loans by claim.
#[derive(Default)]
pub(super) struct Loans(BTreeMap<Claim, Kept>);

impl Loans {
    /// The earliest end of a loan.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|kept| kept.until).min()
    }

    /// Whether a loan is kept for the claim.
    pub(super) fn has(&self, claim: &Claim) -> bool {
        self.0.contains_key(claim)
    }

    fn list(&self, now: Instant) -> Vec<Loan> {
        let loan = |(claim, kept): (&Claim, &Kept)| Loan {
            host: claim.host.clone(),
            share: kept.share,
            memory: kept.memory,
            rate: kept.rate.clone(),
            left_ns: kept.until.since(now),
        };
        self.0.iter().map(loan).collect()
    }
}

impl Engine {
    /// The status of the host, with its loans.
    pub(super) fn status(&self, now: Instant) -> HostStatus {
        HostStatus { loans: self.loans.list(now), ..self.core.status() }
    }

    pub(super) fn keep(&mut self, keep: Keep, now: Instant) {
        let Keep { claim, share, memory, rate, until, teller } = keep;
        if let Some(kept) = self.loans.0.get_mut(&claim) {
            kept.until = until;
            return;
        }
        match self.kept(&claim, share, memory, now) {
            Some(app) => {
                let kept = Kept { app, share, memory, rate, until, teller: teller.clone() };
                self.loans.0.insert(claim.clone(), kept);
                teller.tell(ControlWord::Kept(claim, self.core.host.free()));
            }
            None => teller.tell(ControlWord::Refused(claim)),
        }
    }

    /// Requests the memory and the share from their brokers. Returns `None` if one refuses; then nothing is kept, also
    /// of a loan that is restored. The memory is first: a kept share makes others shrink, a promise of memory does not.
    fn kept(&mut self, claim: &Claim, share: Share, memory: Bytes, now: Instant) -> Option<AppId> {
        if self.loans.0.len() >= MOST || share == Share::ZERO || !self.keeps_memory(claim, memory) {
            return None;
        }
        self.requests_made += 1;
        let (request, name) = (self.requests_made, format!("for {}", claim.host));
        let input = Input::Keep { request, name, owner: Owner::NOBODY, share };
        let Ok(app) = self.core.ask(input, now) else {
            self.free_memory(claim, memory);
            return None;
        };
        self.core.notes.push(Note::LoanGranted { host: claim.host.clone(), share });
        Some(app)
    }

    /// Whether the memory of a loan is promised now. It counts against user 65534 (nobody), as the share does. A host
    /// that uses the number of one of its joint contracts for a loan gets none: both would count as one promise.
    fn keeps_memory(&self, claim: &Claim, memory: Bytes) -> bool {
        memory == Bytes::ZERO || (!self.has_joint(claim) && self.memory.lend(&id_of(claim), memory).is_ok())
    }

    /// Frees the memory of a loan that ends. What an application drew from it stays promised to the application.
    fn free_memory(&self, claim: &Claim, memory: Bytes) {
        if memory > Bytes::ZERO {
            self.memory.free_held(&id_of(claim));
        }
    }

    /// Ends a loan. Does nothing if the loan was claimed or has run out.
    pub(super) fn let_go(&mut self, claim: &Claim, now: Instant) {
        if let Some(kept) = self.loans.0.remove(claim) {
            self.core.handle(Input::Leave { app: kept.app }, now);
            self.free_memory(claim, kept.memory);
            self.core.notes.push(Note::LoanEnded { host: claim.host.clone(), share: kept.share });
        }
    }

    pub(super) fn end_loans(&mut self, now: Instant) {
        let over = |(claim, kept): (&Claim, &Kept)| (kept.until <= now).then(|| claim.clone());
        while let Some(claim) = self.loans.0.iter().find_map(over) {
            self.let_go(&claim, now);
        }
    }

    /// Requests an application from the host. With a claim of a joint contract, it draws from the contract. With the
    /// claim of a loan, the loan is released first, so that only this
    /// application can use its share; if the host refuses the application nevertheless, the loan is restored, unless a
    /// limit was lowered below it meanwhile.
    pub(super) fn ask_for(&mut self, input: Input, claim: Option<&Claim>, now: Instant) -> Answer {
        let Some(claim) = claim else { return self.core.ask(input, now) };
        let Some(kept) = self.loans.0.remove(claim) else { return self.draw(input, claim, now) };
        self.core.handle(Input::Leave { app: kept.app }, now);
        let pid = if let Input::Join { pid, .. } = &input { *pid } else { 0 };
        let answer = self.core.ask(input, now);
        let Kept { share, memory, rate, until, teller, .. } = kept;
        match &answer {
            Ok(_) => {
                // The application has drawn what it needs before it asked for the share.
                self.free_memory(claim, memory);
                teller.tell(ControlWord::Used(claim.clone(), pid));
            }
            Err(_) => self.keep(Keep { claim: claim.clone(), share, memory, rate, until, teller }, now),
        }
        answer
    }
}
