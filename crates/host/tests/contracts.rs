//! Every order of messages between two contracts on two hosts, with one lost or repeated message: explored until no
//! new state appears. Each host has room for one of the contracts only.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use qfabric_broker::Holds;
use qfabric_host::manager::contracts::{
    Body, Cap, ContractMessage, Coordinator, CoordinatorOutput, InitiatorCaps, Order, PartRequest, Participant,
    ParticipantOutput, Reason, Timing, carry_out,
};
use qfabric_types::api::contracts::{JointId, JointPart, JointRequest};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Owner, Resource, Resources};

fn cpu(ppm: u64) -> Resources {
    let mut vector = Resources::default();
    vector.set_units(&Resource::Cpu, ppm).unwrap();
    vector
}

fn name(host: usize) -> Name {
    ["alpha", "beta"][host].parse().unwrap()
}

/// Two hosts, the messages between them, and the number of faults that may still occur.
#[derive(Clone, Debug)]
struct State {
    coordinators: [Coordinator; 2],
    participants: [Participant; 2],
    holds: [Holds; 2],
    /// From, to, message; in any order of delivery.
    messages: Vec<(usize, usize, ContractMessage)>,
    faults: u32,
    now: Instant,
    in_force: BTreeMap<JointId, bool>,
}

impl State {
    /// Both hosts have asked for most of both hosts.
    fn new(wanted: u64, attempts: u32, faults: u32) -> State {
        let timing = Timing { attempts, ..Timing::default() };
        let (now, holds) = (Instant::new(1), || Holds::new(cpu(100), BTreeMap::new()));
        let mut state = State {
            coordinators: [0, 1].map(|host| Coordinator::new(name(host), timing, host as u64)),
            participants: [0, 1].map(|host| Participant::new(name(host))),
            holds: [holds(), holds()],
            messages: Vec::new(),
            faults,
            now,
            in_force: BTreeMap::new(),
        };
        for host in [0, 1] {
            let part = |host| JointPart { host: name(host), wanted: cpu(wanted), minimum: None, application: None };
            let request = JointRequest::new(vec![part(0), part(1)]).unwrap();
            state.coordinators[host].apply(host as u64 + 1, Owner { uid: 0, gid: 0 }, &request, now).unwrap();
            state.drain(host);
        }
        state
    }

    fn deliver(&mut self, at: usize) {
        let (from, to, message) = self.messages.remove(at);
        let (coordinator, participant) = (&mut self.coordinators[to], &mut self.participants[to]);
        message.deliver(&name(from), coordinator, participant, self.now);
        self.drain(to);
    }

    fn drain(&mut self, host: usize) {
        while let Some(output) = self.participants[host].poll() {
            match output {
                ParticipantOutput::Send(to, message) => self.send(host, &to, message),
                ParticipantOutput::Order(order) => {
                    if let Some(answer) = carry_out(&mut self.holds[host], order, self.now) {
                        self.participants[host].answered(answer, self.now);
                    }
                }
                _ => {}
            }
        }
        while let Some(output) = self.coordinators[host].poll() {
            match output {
                CoordinatorOutput::Send(to, message) => self.send(host, &to, message),
                CoordinatorOutput::InForce { id, .. } => drop(self.in_force.insert(id, true)),
                CoordinatorOutput::Refused { id, .. } => drop(self.in_force.insert(id, false)),
                _ => {}
            }
        }
        self.holds.iter().for_each(Holds::check);
    }

    fn send(&mut self, from: usize, to: &Name, message: ContractMessage) {
        let to = usize::from(*to == name(1));
        self.messages.push((from, to, message));
    }

    /// Each message may be delivered; one may be lost, or delivered and left for another delivery.
    fn successors(&self) -> Vec<State> {
        let mut successors = Vec::new();
        for at in 0..self.messages.len() {
            let mut delivered = self.clone();
            delivered.deliver(at);
            successors.push(delivered);
            if self.faults > 0 {
                let mut lost = State { faults: self.faults - 1, ..self.clone() };
                lost.messages.remove(at);
                successors.push(lost);
                let mut repeated = State { faults: self.faults - 1, ..self.clone() };
                repeated.messages.push(self.messages[at].clone());
                repeated.deliver(at);
                successors.push(repeated);
            }
        }
        successors
    }

    /// The order of the messages in the vector has no meaning.
    fn hash(&self) -> u64 {
        let mut state = self.clone();
        state.messages.sort_by_cached_key(|message| format!("{message:?}"));
        let mut hasher = DefaultHasher::new();
        format!("{state:?}").hash(&mut hasher);
        hasher.finish()
    }

    /// A contract in force is committed on both hosts.
    fn check(&self) {
        for coordinator in &self.coordinators {
            for id in coordinator.contracts() {
                for (host, granted) in coordinator.granted(id).unwrap_or_default() {
                    let holds = &self.holds[usize::from(host == name(1))];
                    assert!(holds.committed(id).is_some_and(|committed| committed.covers(&granted)), "{self:#?}");
                }
            }
        }
    }
}

/// Explores all states. Returns their number and the quiet ones.
fn explore(start: State) -> (usize, Vec<State>) {
    let (mut seen, mut open, mut quiet) = (HashSet::from([start.hash()]), vec![start], Vec::new());
    while let Some(state) = open.pop() {
        state.check();
        let successors = state.successors();
        if successors.is_empty() {
            quiet.push(state);
        }
        open.extend(successors.into_iter().filter(|state| seen.insert(state.hash())));
    }
    (seen.len(), quiet)
}

#[test]
fn in_every_order_of_messages_at_most_one_of_two_contracts_comes_into_force() {
    let (states, quiet) = explore(State::new(80, 1, 0));
    println!("{states} states, {} quiet", quiet.len());
    let outcomes: HashSet<Vec<bool>> = quiet.iter().map(|state| state.in_force.values().copied().collect()).collect();
    let expected = [vec![false, false], vec![false, true], vec![true, false]];
    assert_eq!(outcomes, HashSet::from(expected), "all are decided; both are refused if each has one host");
    let is_free =
        |state: &State| state.in_force.values().any(|is_in_force| *is_in_force) || state.holds[0].free() == cpu(100);
    assert!(quiet.iter().all(is_free), "a refused contract holds nothing");
}

#[test]
fn in_every_order_of_messages_two_contracts_that_fit_come_into_force() {
    let (states, quiet) = explore(State::new(50, 1, 0));
    println!("{states} states, {} quiet", quiet.len());
    assert!(quiet.iter().all(|state| state.in_force.len() == 2 && state.in_force.values().all(|in_force| *in_force)));
}

#[test]
fn one_lost_or_repeated_message_breaks_no_promise_and_expires() {
    let (states, quiet) = explore(State::new(80, 1, 1));
    println!("{states} states, {} quiet", quiet.len());
    for mut state in quiet {
        state.now = Instant::new(1) + Timing::default().hold;
        for host in [0, 1] {
            state.participants[host].wake(state.now);
            state.coordinators[host].wake(state.now);
            state.drain(host);
        }
        state.messages.clear();
        assert_eq!(state.holds.each_ref().map(Holds::free), [cpu(100), cpu(100)], "nothing outlives a hold");
    }
}

/// One host with contracts over itself.
struct Alone {
    coordinator: Coordinator,
    participant: Participant,
    holds: Holds,
    now: Instant,
    offered: Option<Resources>,
}

impl Alone {
    fn new() -> Alone {
        let (coordinator, participant) = (Coordinator::new(name(0), Timing::default(), 1), Participant::new(name(0)));
        let (holds, now) = (Holds::new(cpu(100), BTreeMap::new()), Instant::new(1));
        Alone { coordinator, participant, holds, now, offered: None }
    }

    fn apply(&mut self, number: u64, wanted: u64, minimum: u64) -> JointId {
        let minimum = Some(cpu(minimum));
        let part = JointPart { host: name(0), wanted: cpu(wanted), minimum, application: None };
        let request = JointRequest::new(vec![part]).unwrap();
        let id = self.coordinator.apply(number, Owner { uid: 0, gid: 0 }, &request, self.now).unwrap();
        self.drain();
        id
    }

    fn drain(&mut self) {
        loop {
            let message = match (self.coordinator.poll(), self.participant.poll()) {
                (None, None) => return,
                (Some(CoordinatorOutput::Upgrade { granted, .. }), other) => {
                    assert_eq!((self.offered.replace(granted), other), (None, None));
                    continue;
                }
                (made, other) => [sent(made), self.carried_out(other)],
            };
            for message in message.into_iter().flatten() {
                message.deliver(&name(0), &mut self.coordinator, &mut self.participant, self.now);
            }
        }
    }

    fn carried_out(&mut self, output: Option<ParticipantOutput>) -> Option<ContractMessage> {
        match output? {
            ParticipantOutput::Send(_, message) => Some(message),
            ParticipantOutput::Order(order) => {
                let answer = carry_out(&mut self.holds, order, self.now)?;
                self.participant.answered(answer, self.now);
                None
            }
            _ => None,
        }
    }
}

fn sent(output: Option<CoordinatorOutput>) -> Option<ContractMessage> {
    match output? {
        CoordinatorOutput::Send(_, message) => Some(message),
        _ => None,
    }
}

#[test]
fn a_declined_upgrade_is_free_at_once_and_not_offered_again_at_once() {
    let mut host = Alone::new();
    let other = host.apply(1, 60, 60);
    let contract = host.apply(2, 80, 20);
    assert_eq!(host.holds.committed(&contract), Some(&cpu(40)));
    host.coordinator.end(&other);
    host.drain();
    assert_eq!((host.offered.take(), host.holds.free()), (Some(cpu(80)), cpu(20)));
    host.coordinator.decline(&contract, &name(0), host.now);
    host.drain();
    assert_eq!((host.offered.take(), host.holds.free()), (None, cpu(60)));
    host.participant.freed(host.now);
    host.drain();
    assert_eq!((host.offered.take(), host.holds.committed(&contract)), (None, Some(&cpu(40))));
    host.holds.check();
    let whole = host.apply(3, 60, 60);
    assert_eq!(host.holds.committed(&whole), Some(&cpu(60)), "another contract has the declined part");
}

/// What a participant without brokers says to one message, and whether it asks the application.
fn answers(participant: &mut Participant, message: &ContractMessage, now: Instant) -> (Vec<ContractMessage>, bool) {
    let mut holds = Holds::new(cpu(100), BTreeMap::new());
    let (mut sent, mut asks) = (Vec::new(), false);
    participant.receive(&name(0), message.clone(), now);
    while let Some(output) = participant.poll() {
        match output {
            ParticipantOutput::Send(_, message) => sent.push(message),
            ParticipantOutput::Consent { .. } => asks = true,
            ParticipantOutput::Order(order) => {
                carry_out(&mut holds, order, now).into_iter().for_each(|answer| participant.answered(answer, now));
            }
            _ => {}
        }
    }
    (sent, asks)
}

/// The coordinator sends its request again while it has no answer, also at the time at which the application's time ends.
#[test]
fn an_application_that_refused_or_was_silent_is_not_asked_again_by_a_copy_of_the_request() {
    let (mut coordinator, mut participant) =
        (Coordinator::new(name(0), Timing::default(), 1), Participant::new(name(1)));
    let part =
        JointPart { host: name(1), wanted: cpu(10), minimum: None, application: Some("player".parse().unwrap()) };
    let request = JointRequest::new(vec![part]).unwrap();
    let begin = Instant::new(1);
    coordinator.apply(1, Owner { uid: 0, gid: 0 }, &request, begin).unwrap();
    let asked = std::iter::from_fn(|| coordinator.poll()).find_map(|output| sent(Some(output))).unwrap();
    assert_eq!(answers(&mut participant, &asked, begin), (Vec::new(), true));
    let over = begin + Timing::consent(Timing::default().hold);
    participant.wake(over);
    let refusals: Vec<_> = std::iter::from_fn(|| participant.poll())
        .filter_map(|output| if let ParticipantOutput::Send(_, message) = output { Some(message) } else { None })
        .collect();
    assert_eq!(refusals.len(), 1);
    assert_eq!(answers(&mut participant, &asked, over), (refusals, false), "the refusal again, and no question");
}

#[test]
fn contracts_of_other_hosts_take_no_place_of_the_own_ones() {
    let (mut participant, now) = (Participant::new(name(0)), Instant::new(1));
    participant.set_caps(InitiatorCaps { default_host: Cap::default(), ..InitiatorCaps::default() });
    let (owner, hold) = (Owner { uid: 0, gid: 0 }, Timing::default().hold);
    let (wanted, minimum, application) = (cpu(1), Resources::default(), None);
    let part = PartRequest { owner, wanted, minimum, application, may_grow: false, hold };
    let mut request = |host: usize, number: u64| {
        let id = JointId { host: name(host), number };
        participant.receive(&name(host), ContractMessage { id, round: 1, body: Body::Request(part.clone()) }, now);
        std::iter::from_fn(|| participant.poll()).last()
    };
    let is_refused = |output: Option<ParticipantOutput>| match output {
        Some(ParticipantOutput::Send(_, ContractMessage { body: Body::Refuse(Reason::Full { .. }), .. })) => true,
        Some(ParticipantOutput::Order(Order::Hold { .. })) => false,
        other => panic!("{other:?}"),
    };
    let held = (0..10_000).take_while(|number| !is_refused(request(1, *number))).count();
    assert_eq!(held, 4_096);
    assert!(!is_refused(request(0, 1)));
}
