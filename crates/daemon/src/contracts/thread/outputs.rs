//! Carries out what coordinator and participant decide.

use std::collections::BTreeMap;

use qfabric_host::manager::contracts::{ContractMessage, CoordinatorOutput, ParticipantOutput, carry_out};
use qfabric_linux::clock;
use qfabric_types::Resources;
use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;

use super::super::calls::NotMade;
use super::super::consents::Attempt;
use super::Runner;

impl Runner {
    /// Carries out all outputs, and those that they cause.
    pub(super) fn drain(&mut self) {
        loop {
            if let Some(output) = self.coordinator.poll() {
                self.carry_out(output);
            } else if let Some(output) = self.participant.poll() {
                self.carry_out_part(output);
            } else {
                return;
            }
        }
    }

    fn carry_out(&mut self, output: CoordinatorOutput) {
        match output {
            CoordinatorOutput::Send(to, message) => self.send(&to, message),
            CoordinatorOutput::InForce { id, granted } => self.made(&id, granted),
            CoordinatorOutput::Refused { id, refused } => {
                self.report.refused += 1;
                tracing::info!(contract = %id, %refused, "a contract is refused");
                let Some(record) = self.records.0.remove(&id) else { return };
                let refusal = record.refusal(&refused);
                if let Some(reply) = record.reply {
                    _ = reply.send(Err(NotMade::Refused(Box::new(refusal))));
                }
            }
            CoordinatorOutput::Upgrade { id, host, granted } => self.offered(&id, host, granted, clock::now()),
            CoordinatorOutput::Upgraded { id, host, granted } => {
                self.report.upgraded += 1;
                if let Some(record) = self.records.0.get_mut(&id) {
                    record.granted.insert(host, granted);
                }
            }
            CoordinatorOutput::Ended { id, refused } => {
                self.report.lost += 1;
                tracing::warn!(contract = %id, %refused, "a contract in force has ended");
                self.records.0.remove(&id);
            }
        }
    }

    fn made(&mut self, id: &JointId, granted: BTreeMap<Name, Resources>) {
        let Some(record) = self.records.0.get_mut(id) else { return };
        record.granted = granted;
        let shown = record.shown(id);
        if record.reply.take().is_some_and(|reply| reply.send(Ok(shown)).is_err()) {
            // Nobody waits any more, and nobody would end the contract.
            self.records.0.remove(id);
            self.coordinator.end(id);
            return;
        }
        self.report.made += 1;
        tracing::info!(contract = %id, "a contract is in force");
    }

    fn carry_out_part(&mut self, output: ParticipantOutput) {
        match output {
            ParticipantOutput::Send(to, message) => self.send(&to, message),
            ParticipantOutput::Order(order) => {
                if let Some(answer) = carry_out(&mut self.book, order, clock::now()) {
                    self.participant.answered(answer, clock::now());
                }
            }
            ParticipantOutput::Consent { id, round, application, granted, until } => {
                self.ask_application(&application, Attempt { id, round }, granted, until);
            }
            ParticipantOutput::InForce { .. } | ParticipantOutput::Ended { .. } => {}
        }
    }

    fn send(&mut self, to: &Name, message: ContractMessage) {
        if *to == self.host {
            let host = self.host.clone();
            return self.receive(&host, message, clock::now());
        }
        self.channels.tell_contract(to, &message);
    }
}
