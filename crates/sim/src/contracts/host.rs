//! One simulated host: coordinator, participant, book and clock.

use std::collections::BTreeMap;

use qfabric_broker::Holds;
use qfabric_host::manager::contracts::{
    ContractMessage, Coordinator, CoordinatorOutput, Participant, ParticipantOutput, Timing, carry_out,
};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

use super::workload::capacity;

/// A clock with its own origin and rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub offset: Nanos,
    /// Local nanoseconds per nanosecond.
    pub rate: f64,
}

impl Clock {
    pub(super) fn local(self, at: Instant) -> Instant {
        Instant::new((at.get() as f64 * self.rate) as u64) + self.offset
    }

    /// The first time at which the clock shows at least `local`.
    pub(super) fn global(self, local: Instant) -> Instant {
        if local == Instant::NEVER {
            return local;
        }
        Instant::new((local.since(Instant::ZERO + self.offset).as_f64() / self.rate) as u64 + 2)
    }
}

/// One output of a host, with its own steps already carried out.
#[derive(Debug)]
pub(super) enum Output {
    Coordinator(CoordinatorOutput),
    Participant(ParticipantOutput),
}

#[derive(Debug)]
pub(super) struct Host {
    pub name: Name,
    pub clock: Clock,
    pub coordinator: Coordinator,
    pub participant: Participant,
    pub holds: Holds,
    /// The time of the last crash.
    pub crashed: Option<Instant>,
    /// The last time that its link was closed.
    pub closed: Option<Instant>,
    pub is_up: bool,
    /// Outputs so far; a crash is placed at one of them.
    pub outputs: u64,
    pub wake_serial: u64,
}

impl Host {
    pub(super) fn new(name: Name, clock: Clock, timing: Timing, seed: u64) -> Host {
        Host {
            coordinator: Coordinator::new(name.clone(), timing, seed),
            participant: Participant::new(name.clone()),
            holds: Holds::new(capacity(), BTreeMap::new()),
            name,
            clock,
            crashed: None,
            closed: None,
            is_up: true,
            outputs: 0,
            wake_serial: 0,
        }
    }

    /// Forgets everything, as a killed daemon does.
    pub(super) fn crash(&mut self, timing: Timing, seed: u64, at: Instant) {
        let fresh = Host::new(self.name.clone(), self.clock, timing, seed);
        let (outputs, wake_serial) = (self.outputs, self.wake_serial + 1);
        *self = Host { crashed: Some(at), outputs, wake_serial, is_up: false, ..fresh };
    }

    pub(super) fn receive(&mut self, from: &Name, message: ContractMessage, at: Instant) {
        let now = self.clock.local(at);
        message.deliver(from, &mut self.coordinator, &mut self.participant, now);
    }

    pub(super) fn wake(&mut self, at: Instant) {
        let now = self.clock.local(at);
        self.holds.expire(now);
        self.participant.wake(now);
        self.coordinator.wake(now);
    }

    /// The administrator closes the link, and opens it again at once.
    pub(super) fn close_link(&mut self, at: Instant) {
        self.holds.close(&"network eth0 out".parse().expect("a resource"));
        self.closed = Some(at);
    }

    /// The next output. Orders for the brokers are carried out here, in order.
    pub(super) fn poll(&mut self, at: Instant) -> Option<Output> {
        let now = self.clock.local(at);
        let output = match self.participant.poll() {
            Some(output) => Output::Participant(output),
            None => Output::Coordinator(self.coordinator.poll()?),
        };
        self.outputs += 1;
        if let Output::Participant(ParticipantOutput::Order(order)) = &output
            && let Some(answer) = carry_out(&mut self.holds, order.clone(), now)
        {
            self.participant.answered(answer, now);
        }
        Some(output)
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let wakeups = [self.coordinator.next_wakeup(), self.participant.next_wakeup(), self.holds.next_wakeup()];
        wakeups.into_iter().flatten().min().map(|local| self.clock.global(local))
    }
}
