use proptest::prelude::*;
use qfabric_broker::{HoldRequest, Holds};
use qfabric_types::api::contracts::JointId;
use qfabric_types::{Instant, Nanos, Owner};

use super::super::{Body, ContractMessage, Order, Participant, ParticipantOutput, Refused, carry_out};
use super::*;

const NOW: Instant = Instant::new(1);
const HOSTS: [&str; 3] = ["here", "alpha", "beta"];

/// A request, or the end of one: host, number, group, CPU and memory, and the part of them that is the minimum.
#[derive(Clone, Debug)]
struct Step {
    host: usize,
    number: u64,
    gid: u32,
    units: [u64; 2],
    half: bool,
    is_end: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..3usize, 0..6u64, 0..3u32, [1..60u64, 0..60u64], any::<bool>(), 0..4u32);
    let step = step.prop_map(|(host, number, gid, units, half, kind)| Step {
        host,
        number,
        gid,
        units,
        half,
        is_end: kind == 0,
    });
    prop::collection::vec(step, 1..80)
}

fn vector(units: [u64; 2]) -> Resources {
    let mut vector = Resources::default();
    vector.set_units(&Resource::Cpu, units[0]).unwrap();
    vector.set_units(&Resource::Memory, units[1]).unwrap();
    vector
}

fn cap(contracts: u32, cpu: u64, memory: u64) -> Cap {
    let amounts = [(Resource::Cpu, cpu), (Resource::Memory, memory)].into_iter().collect();
    Cap { contracts: Some(contracts), amounts }
}

fn caps() -> InitiatorCaps {
    let hosts = [("alpha".parse().unwrap(), cap(4, 100, 90))].into_iter().collect();
    let groups = [(1, cap(2, 70, 50))].into_iter().collect();
    InitiatorCaps { hosts, default_host: cap(3, 120, 80), groups }
}

/// A participant whose host has more than all caps allow, and its holds by identity.
struct Host {
    participant: Participant,
    holds: Holds,
    held: BTreeMap<JointId, (u32, Resources)>,
    round: u32,
}

impl Host {
    fn new(caps: InitiatorCaps) -> Host {
        let mut participant = Participant::new("here".parse().unwrap());
        participant.set_caps(caps);
        let holds = Holds::new(vector([100_000, 100_000]), BTreeMap::new());
        Host { participant, holds, held: BTreeMap::new(), round: 0 }
    }

    /// Returns the reason if the step was a request that was refused.
    fn step(&mut self, step: &Step) -> Option<Reason> {
        let (host, number): (Name, _) = (HOSTS[step.host].parse().unwrap(), step.number);
        let id = JointId { host: host.clone(), number };
        self.round += 1;
        self.held.remove(&id);
        let body = if step.is_end { Body::Cancel } else { Body::Request(part(step)) };
        self.participant.receive(&host, ContractMessage { id, round: self.round, body }, NOW);
        self.drain(step.gid)
    }

    fn drain(&mut self, gid: u32) -> Option<Reason> {
        let mut refused = None;
        while let Some(output) = self.participant.poll() {
            match output {
                ParticipantOutput::Order(order) => {
                    if let Order::Hold { request: HoldRequest { id, wanted, .. }, .. } = &order {
                        self.held.insert(id.clone(), (gid, wanted.clone()));
                    }
                    if let Some(answer) = carry_out(&mut self.holds, order, NOW) {
                        self.participant.answered(answer, NOW);
                    }
                }
                ParticipantOutput::Send(_, ContractMessage { body: Body::Refuse(reason), .. }) => {
                    refused = Some(reason);
                }
                _ => {}
            }
        }
        refused
    }

    /// The number and amounts of a host's contracts, or of those of one of its groups.
    fn sum(&self, host: &str, gid: Option<u32>) -> (u32, [u64; 2]) {
        let of_host = self.held.iter().filter(|(id, _)| id.host.as_str() == host);
        let counted = of_host.filter(|(_, (of, _))| gid.is_none_or(|gid| gid == *of));
        counted.fold((0, [0; 2]), |(count, [cpu, memory]), (_, (_, held))| {
            let units = [&Resource::Cpu, &Resource::Memory].map(|resource| held.units(resource));
            (count + 1, [cpu + units[0], memory + units[1]])
        })
    }

    fn check(&self) {
        self.holds.check();
        let mut bounds = vec![("alpha", None, cap(4, 100, 90)), ("beta", None, cap(3, 120, 80))];
        bounds.extend(HOSTS.map(|host| (host, Some(1), cap(2, 70, 50))));
        for (host, gid, cap) in bounds {
            let (count, [cpu, memory]) = self.sum(host, gid);
            assert!(count <= cap.contracts.unwrap(), "{host} {gid:?}: {count} contracts");
            assert!(cpu <= cap.amounts[&Resource::Cpu] && memory <= cap.amounts[&Resource::Memory], "{host} {gid:?}");
        }
    }
}

fn part(step: &Step) -> PartRequest {
    let (wanted, half) = (vector(step.units), vector(step.units.map(|units| units / 2)));
    let minimum = if step.half { half } else { wanted.clone() };
    let owner = Owner { uid: 0, gid: step.gid };
    PartRequest { owner, wanted, minimum, application: None, may_grow: true, hold: Nanos::from_millis(3_000) }
}

proptest! {
    #[test]
    fn no_initiator_exceeds_a_cap_and_every_refusal_is_necessary(steps in steps()) {
        let mut host = Host::new(caps());
        for step in steps {
            let refused = host.step(&step);
            host.check();
            if let Some(reason) = refused {
                let Reason::OverCap(over) = reason else { panic!("{reason}") };
                let (gid, name) = (step.gid, HOSTS[step.host]);
                match over {
                    OverCap::Contracts { scope: CapScope::Host, cap } => prop_assert_eq!(host.sum(name, None).0, cap),
                    OverCap::Contracts { cap, .. } => prop_assert_eq!(host.sum(name, Some(gid)).0, cap),
                    OverCap::Amount { minimum, cap, left, asked, .. } => {
                        prop_assert!(left.units() < minimum.units() && left.units() <= cap.units());
                        prop_assert!(minimum.units() <= asked.units());
                    }
                }
            }
        }
    }
}

fn request(host: usize, number: u64, gid: u32, cpu: u64) -> Step {
    Step { host, number, gid, units: [cpu, 0], half: false, is_end: false }
}

#[test]
fn a_refusal_over_cap_names_asked_cap_rest_and_remedy() {
    let hosts = [("alpha".parse().unwrap(), cap(4, 100_000, 90))].into_iter().collect();
    let mut host = Host::new(InitiatorCaps { hosts, ..caps() });
    assert_eq!(host.step(&request(1, 1, 7, 80_000)), None);
    let reason = host.step(&request(1, 2, 7, 30_000)).unwrap();
    let refused = Refused { host: "here".parse().unwrap(), reason };
    let answer = refused.answer();
    let cpu = "over cap: the initiating host asked for 0.03 CPU of cpu, at least 0.03 CPU; \
               0.02 CPU of its cap of 0.1 CPU is left";
    assert_eq!(refused.reason.to_string(), cpu);
    assert_eq!((answer.asked, answer.largest), (Some(0.03), Some(0.02)));
    assert!(refused.problem().next_step.contains("raise the cap"));
    (3..6).for_each(|number| assert_eq!(host.step(&request(2, number, 7, 1)), None));
    let reason = host.step(&request(2, 6, 7, 1)).unwrap();
    assert_eq!(reason.to_string(), "over cap: the initiating host asked for one more than its cap of 3 contracts");
}

#[test]
fn the_groups_of_one_host_take_nothing_from_those_of_another_and_an_end_gives_back() {
    let mut host = Host::new(caps());
    assert_eq!(host.step(&request(1, 1, 1, 70)), None);
    let refused = host.step(&request(1, 2, 1, 1)).unwrap();
    assert!(refused.to_string().contains("user group 1 of the initiating host"), "{refused}");
    assert_eq!(host.step(&request(2, 1, 1, 70)), None, "another host");
    assert_eq!(host.step(&request(0, 1, 1, 70)), None, "the own host");
    assert_eq!(host.step(&request(0, 2, 2, 5_000)), None, "the own host has no cap but those of groups");
    host.step(&Step { is_end: true, ..request(1, 1, 1, 0) });
    assert_eq!(host.step(&request(1, 2, 1, 70)), None);
}
