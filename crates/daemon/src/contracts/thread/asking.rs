//! Programs that are asked: for the consent of an application, for an upgrade; and contracts whose holder has ended.

use qfabric_host::manager::contracts::{NoConsent, Timing};
use qfabric_linux::clock;
use qfabric_types::api::Problem;
use qfabric_types::api::contracts::{JointId, UpgradeOffer, UpgradePolicy};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, Resources};
use tokio::sync::oneshot;

use super::super::JointConfig;
use super::super::calls::{ConsentCall, NotMade};
use super::super::config::DefaultConsent;
use super::super::consents::Attempt;
use super::super::problems;
use super::Runner;
use crate::auth::Peer;

/// Time for the answer to an offer, from its arrival. The host holds it for a hold from its sending; the rest is for the
/// messages.
fn offer_time() -> Nanos {
    let hold = Timing::default().hold;
    hold.saturating_sub(Nanos::new(hold.get() / 8))
}

impl Runner {
    /// A host offers more for a contract.
    pub(super) fn offered(&mut self, id: &JointId, host: Name, granted: Resources, now: Instant) {
        let Some(record) = self.records.0.get_mut(id) else { return };
        match record.request.upgrades() {
            // The user asked for this amount.
            UpgradePolicy::Accept => self.coordinator.upgrade(id, &host, now),
            UpgradePolicy::Ask => {
                record.offers.insert(host, (granted, now + offer_time()));
                record.tell(now);
            }
            UpgradePolicy::Never => {}
        }
    }

    pub(super) fn next_offer(
        &mut self,
        peer: Peer,
        id: &JointId,
        waiting: oneshot::Sender<UpgradeOffer>,
        now: Instant,
    ) -> Result<(), Problem> {
        let record = self.own_contract(peer, id)?;
        if record.request.upgrades() != UpgradePolicy::Ask {
            return Err(problems::not_asked(id));
        }
        record.waiting = Some(waiting);
        record.tell(now);
        Ok(())
    }

    /// A declined offer is free at once, and is not offered again for eight holds.
    pub(super) fn answer_offer(
        &mut self,
        peer: Peer,
        id: &JointId,
        host: &Name,
        is_accepted: bool,
        now: Instant,
    ) -> Result<(), Problem> {
        let offer = self.own_contract(peer, id)?.offers.remove(host).filter(|(_, until)| *until > now);
        offer.ok_or_else(|| problems::no_such_offer(id, host))?;
        match is_accepted {
            true => self.coordinator.upgrade(id, host, now),
            false => self.coordinator.decline(id, host, now),
        }
        Ok(())
    }

    /// Asks an application of this host for its consent.
    pub(super) fn ask_application(&mut self, application: &Name, attempt: Attempt, granted: Resources, until: Instant) {
        let now = clock::now();
        if let Some(answer) = self.consents.ask(application, attempt.clone(), granted, until, now) {
            self.participant.consented(&attempt.id, attempt.round, answer, now);
        }
    }

    pub(super) fn consent(&mut self, call: ConsentCall, now: Instant) {
        // An answer without a receiver is dropped.
        match call {
            ConsentCall::Set { peer, application, policy, lease, reply } => {
                _ = reply.send(self.consents.set(peer, &application, policy, lease));
            }
            ConsentCall::List { peer, reply } => _ = reply.send(self.consents.list(peer)),
            ConsentCall::End { peer, application, reply } => {
                let ended = self.consents.end(peer, &application);
                _ = reply.send(ended.map(|open| self.nobody_answers(&open, now)));
            }
            ConsentCall::Next { peer, application, waiting, reply } => {
                _ = reply.send(self.consents.next(peer, &application, waiting, now));
            }
            ConsentCall::Answer { peer, application, number, is_accepted, reply } => {
                let answer = if is_accepted { Ok(()) } else { Err(NoConsent::Declined) };
                let answered = self.consents.answered(peer, &application, number, now);
                let mut is_open =
                    |attempt: Attempt| self.participant.consented(&attempt.id, attempt.round, answer, now);
                let late = || problems::no_such_question(&application, number);
                _ = reply.send(answered.and_then(|attempt| is_open(attempt).then_some(()).ok_or_else(late)));
            }
        }
    }

    /// The section `[joint]` has changed.
    pub(super) fn configure(&mut self, config: JointConfig, now: Instant) {
        self.participant.set_caps(config.caps());
        self.participant.set_consent_time(config.consent_time);
        let open = self.consents.configure(config.applications, config.consent == DefaultConsent::Accept);
        self.nobody_answers(&open, now);
        // A larger cap may let contracts grow.
        self.participant.freed(now);
    }

    /// The process of a lease has ended: its contract ends, or its answers do.
    pub(super) fn holder_ended(&mut self, lease: u64, now: Instant) {
        let open = self.consents.holder_ended(lease);
        self.nobody_answers(&open, now);
        let Some(id) = self.records.of_lease(lease) else { return };
        self.coordinator.end(&id);
        let Some(record) = self.records.0.remove(&id) else { return };
        let pid = record.lease.as_ref().map_or(0, |lease| lease.pid);
        tracing::info!(contract = %id, pid, "the contract has ended, because its holder's process has ended");
        if let Some(reply) = record.reply {
            _ = reply.send(Err(NotMade::Problem(problems::holder_ended(pid))));
        }
    }

    fn nobody_answers(&mut self, open: &[Attempt], now: Instant) {
        for Attempt { id, round } in open {
            self.participant.consented(id, *round, Err(NoConsent::Absent), now);
        }
    }
}
