//! Properties of messages about joint contracts.

use std::collections::BTreeMap;

use qfabric_broker::Holds;
use qfabric_host::manager::contracts::{
    Body, Cap, ContractMessage, Coordinator, CoordinatorOutput, InitiatorCaps, NoConsent, NotReadable, PartRequest,
    Participant, ParticipantOutput, Timing, carry_out,
};
use qfabric_types::api::contracts::{JointId, JointPart, JointRequest, UpgradePolicy};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, Owner, Resource, Resources};

use crate::Script;

const BEGIN: Instant = Instant::new(1_000_000_000);
const HOSTS: [&str; 3] = ["a", "b", "c"];
/// Largest number of steps of a script.
const MAX_STEPS: usize = 64;
/// Largest number of outputs of one input. Each step makes at most one part, and a wake may release all of them, report
/// their ends, and ask the broker for upgrades.
const MAX_OUTPUTS: usize = 4 * MAX_STEPS;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn vector(cpu: u64, memory: u64, rate: u64) -> Resources {
    let mut vector = Resources::default();
    for (resource, units) in [("cpu", cpu), ("memory", memory), ("network eth0 out", rate)] {
        vector.put(&resource.parse().expect("a resource"), units);
    }
    vector
}

/// A message that is read is written, and the written bytes give the same message. Then the input is a script of
/// messages from other hosts, answers of applications and steps in time, for a host that initiates a contract and
/// takes part in others: it never promises more than it has or more than its caps allow, sends a bounded number of
/// messages for each, and holds nothing after the end of all times.
pub fn contract_message(bytes: &[u8]) {
    let _may_fail = read_and_write(bytes);
    let (mut script, mut host) = (Script(bytes), Host::new());
    for _ in 0..MAX_STEPS {
        if script.is_over() {
            break;
        }
        host.step(&mut script);
        host.check();
    }
    host.end();
}

/// A request that the local interface accepts reaches its hosts: its messages can be read.
pub(crate) fn assert_request_is_carried(request: &JointRequest) {
    for part in request.parts() {
        let (wanted, minimum) = (part.wanted.clone(), part.minimum().clone());
        let (owner, application) = (Owner { uid: 1, gid: 2 }, part.application.clone());
        let may_grow = request.upgrades() != UpgradePolicy::Never;
        let body =
            Body::Request(PartRequest { owner, wanted, minimum, application, may_grow, hold: Timing::default().hold });
        let message = ContractMessage { id: JointId { host: part.host.clone(), number: 7 }, round: 1, body };
        assert_eq!(ContractMessage::decode(&message.encode(BEGIN)), Ok(message));
    }
}

fn read_and_write(bytes: &[u8]) -> Result<ContractMessage, NotReadable> {
    let message = ContractMessage::decode(bytes)?;
    assert_eq!(ContractMessage::decode(&message.encode(BEGIN)).as_ref(), Ok(&message));
    Ok(message)
}

/// The host `a`, which initiates one contract with `b`.
struct Host {
    coordinator: Coordinator,
    participant: Participant,
    holds: Holds,
    now: Instant,
}

impl Host {
    fn new() -> Host {
        let (mut coordinator, mut participant) =
            (Coordinator::new(name("a"), Timing::default(), 7), Participant::new(name("a")));
        let default_host = Cap { contracts: Some(8), amounts: [(Resource::Memory, 1 << 29)].into() };
        participant.set_caps(InitiatorCaps { default_host, ..InitiatorCaps::default() });
        let part = |host| JointPart { host: name(host), wanted: vector(9, 9, 9), minimum: None, application: None };
        let request = JointRequest::new(vec![part("a"), part("b")]).expect("a valid request");
        let request = request.with_patience_ms(2_000).expect("a short patience");
        coordinator.apply(1, Owner { uid: 1, gid: 1 }, &request, BEGIN).expect("the first contract");
        let holds = Holds::new(vector(1_000_000, 1 << 30, 1_000_000_000), BTreeMap::new());
        let mut host = Host { coordinator, participant, holds, now: BEGIN };
        host.drain();
        host
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let from = name(HOSTS[script.below(HOSTS.len())]);
        match script.below(4) {
            0 => self.wake(Nanos::from_millis(u64::from(script.half()))),
            1 => {
                let id = JointId { host: from, number: u64::from(script.byte()) };
                let (round, is_accepted) = (u32::from(script.byte()), script.below(2) == 0);
                let answer = if is_accepted { Ok(()) } else { Err(NoConsent::Declined) };
                self.participant.consented(&id, round, answer, self.now);
            }
            _ => self.receive(&from, script.piece()),
        }
        self.drain();
    }

    fn receive(&mut self, from: &Name, bytes: &[u8]) {
        match read_and_write(bytes) {
            Ok(message) => {
                message.deliver(from, &mut self.coordinator, &mut self.participant, self.now);
            }
            Err(NotReadable::Version { number, .. }) => self.participant.not_readable(from, number),
            Err(_) => {}
        }
    }

    fn wake(&mut self, passed: Nanos) {
        self.now = self.now + passed;
        self.holds.expire(self.now);
        self.participant.wake(self.now);
        self.coordinator.wake(self.now);
        self.drain();
    }

    /// Carries out all outputs. Messages to the own host arrive at once.
    fn drain(&mut self) {
        let mut outputs = 0;
        loop {
            let sent = match (self.participant.poll(), self.coordinator.poll()) {
                (None, None) => break,
                (participated, coordinated) => {
                    let orders = participated.and_then(|output| self.participated(output));
                    let coordinated = coordinated.and_then(|output| match output {
                        CoordinatorOutput::Send(to, message) => Some((to, message)),
                        _ => None,
                    });
                    [orders, coordinated]
                }
            };
            for (to, message) in sent.into_iter().flatten() {
                assert_eq!(ContractMessage::decode(&message.encode(self.now)).as_ref(), Ok(&message));
                if to == name("a") {
                    message.deliver(&to, &mut self.coordinator, &mut self.participant, self.now);
                }
            }
            outputs += 1;
            assert!(outputs <= MAX_OUTPUTS, "{outputs} outputs of one input");
        }
    }

    fn participated(&mut self, output: ParticipantOutput) -> Option<(Name, ContractMessage)> {
        match output {
            ParticipantOutput::Send(to, message) => return Some((to, message)),
            ParticipantOutput::Order(order) => {
                if let Some(answer) = carry_out(&mut self.holds, order, self.now) {
                    self.participant.answered(answer, self.now);
                }
            }
            _ => {}
        }
        None
    }

    fn check(&self) {
        self.holds.check();
        for other in ["b", "c"] {
            let held = self.holds.entries().filter(|(id, _)| id.host == name(other)).count();
            assert!(held <= 8, "{held} contracts of {other}");
        }
    }

    /// Nothing is held when no message arrives for the longest hold, and the own contract has a decision.
    fn end(&mut self) {
        self.coordinator.contracts().cloned().collect::<Vec<_>>().iter().for_each(|id| {
            self.coordinator.end(id);
        });
        self.drain();
        self.wake(Timing::LONGEST);
        assert_eq!(self.participant.contracts(), 0);
        assert_eq!(self.holds.entries().count(), 0);
    }
}
