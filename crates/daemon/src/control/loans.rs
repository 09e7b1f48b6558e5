//! What the broker keeps for applications that other hosts refused.
//!
//! Managers of other hosts ask through the channels' threads; the word goes back through a bounded queue and an eventfd, so
//! that this thread waits for nobody. Each loan ends by itself, whether or not somebody says so.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use qfabric_host::Input;
use qfabric_types::api::{Claim, HostStatus, Loan};
use qfabric_types::{AppId, Instant, Share};

use super::core::Answer;
use super::engine::Engine;
use super::notes::Note;
use super::sources::wake;
use crate::problem;

/// Loans at the same time; one more is refused.
const MOST: usize = 64;
/// Words that may wait: as many as there can be loans and requests. One more is lost, and its loan ends by itself.
const WORDS: usize = 256;

/// So much is to be kept, or what is kept is kept for longer.
pub(crate) struct Keep {
    pub claim: Claim,
    pub share: Share,
    pub until: Instant,
    pub teller: Teller,
}

/// What became of a loan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoanWord {
    /// It is kept; so much more is free.
    Kept(Claim, Share),
    Refused(Claim),
    /// An application has it.
    Used(Claim),
}

/// The way back. Never blocks.
#[derive(Clone)]
pub(crate) struct Teller {
    queue: SyncSender<LoanWord>,
    wake: Arc<OwnedFd>,
}

impl Teller {
    /// Both ends; whoever reads is woken by `wake`.
    pub fn new(wake: Arc<OwnedFd>) -> (Teller, Receiver<LoanWord>) {
        let (queue, receiver) = sync_channel(WORDS);
        (Teller { queue, wake }, receiver)
    }

    fn tell(&self, word: LoanWord) {
        // Full, or nobody there any more: an offer less.
        if self.queue.try_send(word).is_ok() {
            wake(&*self.wake);
        }
    }
}

struct Kept {
    app: AppId,
    share: Share,
    until: Instant,
    teller: Teller,
}

/// By what is to be shown for each.
#[derive(Default)]
pub(super) struct Loans(BTreeMap<Claim, Kept>);

impl Loans {
    /// When the next one ends.
    pub fn next(&self) -> Option<Instant> {
        self.0.values().map(|kept| kept.until).min()
    }

    fn list(&self, now: Instant) -> Vec<Loan> {
        let loan = |(claim, kept): (&Claim, &Kept)| Loan {
            host: claim.host.clone(),
            share: kept.share,
            left_ns: kept.until.since(now),
        };
        self.0.iter().map(loan).collect()
    }
}

impl Engine {
    /// The whole host.
    pub(super) fn status(&self, now: Instant) -> HostStatus {
        HostStatus { loans: self.loans.list(now), ..self.core.status() }
    }

    pub(super) fn keep(&mut self, keep: Keep, now: Instant) {
        let Keep { claim, share, until, teller } = keep;
        if let Some(kept) = self.loans.0.get_mut(&claim) {
            kept.until = until;
            return;
        }
        match self.kept(&claim, share, now) {
            Some(app) => {
                self.loans.0.insert(claim.clone(), Kept { app, share, until, teller: teller.clone() });
                teller.tell(LoanWord::Kept(claim, self.core.host.free()));
            }
            None => teller.tell(LoanWord::Refused(claim)),
        }
    }

    /// The broker's answer; none: there is not so much.
    fn kept(&mut self, claim: &Claim, share: Share, now: Instant) -> Option<AppId> {
        if self.loans.0.len() >= MOST || share == Share::ZERO {
            return None;
        }
        self.requests_made += 1;
        let input = Input::Keep { request: self.requests_made, name: format!("for {}", claim.host), share };
        let app = self.core.ask(input, now).ok()?;
        self.core.notes.tell(Note::Lent { host: claim.host.clone(), share });
        Some(app)
    }

    /// Nobody there is no error: it was claimed, or its time was over.
    pub(super) fn let_go(&mut self, claim: &Claim, now: Instant) {
        if let Some(kept) = self.loans.0.remove(claim) {
            self.core.handle(Input::Leave { app: kept.app }, now);
            self.core.notes.tell(Note::LentNoMore { host: claim.host.clone(), share: kept.share });
        }
    }

    pub(super) fn end_loans(&mut self, now: Instant) {
        let over = |(claim, kept): (&Claim, &Kept)| (kept.until <= now).then(|| claim.clone());
        while let Some(claim) = self.loans.0.iter().find_map(over) {
            self.let_go(&claim, now);
        }
    }

    /// Asks the host for an application. What its claim stands for is free for it alone, and kept again where it is
    /// refused all the same.
    pub(super) fn ask_for(&mut self, input: Input, claim: Option<&Claim>, now: Instant) -> Answer {
        let Some(claim) = claim else { return self.core.ask(input, now) };
        let kept = self.loans.0.remove(claim).ok_or_else(|| problem::no_such_claim(claim))?;
        self.core.handle(Input::Leave { app: kept.app }, now);
        let answer = self.core.ask(input, now);
        let Kept { share, until, teller, .. } = kept;
        match &answer {
            Ok(_) => teller.tell(LoanWord::Used(claim.clone())),
            Err(_) => self.keep(Keep { claim: claim.clone(), share, until, teller }, now),
        }
        answer
    }
}
