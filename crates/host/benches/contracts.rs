//! Time of the admission of joint contracts on a host: `cargo bench -p qfabric-host --bench contracts`
//!
//! 1,000 contracts come into force one after the other and stay, several times. Each admission is two steps of the
//! participant with its book, from bytes to bytes: the request until the offer, and the Accept until the Confirm.
//! Prints times and asserts nothing, because machines differ. SPECIFICATION.md asks for at most 1 ms each.

use std::collections::BTreeMap;
use std::time::{Duration, Instant as WallTime};

use qfabric_broker::Holds;
use qfabric_host::manager::contracts::{
    Body, Cap, ContractMessage, InitiatorCaps, PartRequest, Participant, ParticipantOutput, carry_out,
};
use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, Owner, Resources};

const CONTRACTS: u64 = 1_000;
const NOW: Instant = Instant::new(1);

fn main() {
    // `make bench ARGS=--short` gives this option to every bench: show only that it works.
    let rounds = if std::env::args().any(|word| word == "--max-time") { 1 } else { 20 };
    for (name, caps) in [("without caps", None), ("with caps of host and group", Some(caps()))] {
        for is_partial in [false, true] {
            let mut samples = Samples::default();
            (0..rounds).for_each(|_| Host::new(caps.clone()).admit_all(is_partial, &mut samples));
            let amounts = if is_partial { "contracts that may grow" } else { "whole contracts" };
            println!("{CONTRACTS} {amounts} on one host, {name}, {rounds} rounds:");
            samples.print();
        }
    }
}

fn caps() -> InitiatorCaps {
    let resources = ["cpu", "memory", "network eth0 out", "network eth0 in"];
    let amounts = resources.map(|resource| (resource.parse().expect("a resource"), 1 << 50));
    let cap = Cap { contracts: Some(2_000), amounts: amounts.into() };
    let groups = [(1_000, cap.clone())].into();
    InitiatorCaps { default_host: cap, groups, ..InitiatorCaps::default() }
}

fn vector(cpu: u64, memory: u64, rate: u64) -> Resources {
    let mut vector = Resources::default();
    for (name, units) in [("cpu", cpu), ("memory", memory), ("network eth0 out", rate), ("network eth0 in", rate / 5)] {
        vector.set_units(&name.parse().expect("a resource"), units).expect("two links");
    }
    vector
}

/// The times of admissions.
#[derive(Default)]
struct Samples {
    /// Request to offer and Accept to Confirm, together.
    all: Vec<Duration>,
    /// The last hundred of each round, when the book is full.
    last: Vec<Duration>,
}

impl Samples {
    fn print(mut self) {
        for (name, times) in [("all", &mut self.all), ("the last 100 of each round", &mut self.last)] {
            times.sort();
            let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
            let (count, median, p99) = (times.len(), at(0.5), at(0.99));
            println!("  {name}: p50 {median:.1?}, p99 {p99:.1?}, longest {:.1?}, {count} admissions", at(1.0));
        }
    }
}

struct Host {
    participant: Participant,
    holds: Holds,
}

impl Host {
    fn new(caps: Option<InitiatorCaps>) -> Host {
        let mut participant = Participant::new("beta".parse().expect("a name"));
        participant.set_caps(caps.unwrap_or_default());
        Host { participant, holds: Holds::new(vector(1_000_000_000, 1 << 40, 1 << 40), BTreeMap::new()) }
    }

    fn admit_all(mut self, is_partial: bool, samples: &mut Samples) {
        let (alpha, wanted): (Name, _) = ("alpha".parse().expect("a name"), vector(900, 1 << 20, 5_000_000));
        let minimum = if is_partial { vector(450, 1 << 19, 2_000_000) } else { wanted.clone() };
        let owner = Owner { uid: 1_000, gid: 1_000 };
        let part =
            PartRequest { owner, wanted, minimum, application: None, may_grow: true, hold: Nanos::from_millis(3_000) };
        for number in 0..CONTRACTS {
            let message = |body| ContractMessage { id: JointId { host: alpha.clone(), number }, round: 1, body };
            let request = message(Body::Request(part.clone())).encode(NOW);
            let (offer, held) = self.answer(&alpha, &request);
            let Body::Offer { granted, .. } = offer else { panic!("contract {number}: {offer:?}") };
            // A part of the offer, so that the contract may grow later.
            let granted = if is_partial { part.minimum.clone() } else { granted };
            let accept = message(Body::Accept { step: 1, granted, frees_upgrade: false }).encode(NOW);
            let (confirm, committed) = self.answer(&alpha, &accept);
            assert!(matches!(confirm, Body::Confirm { .. }), "contract {number}: {confirm:?}");
            samples.all.push(held + committed);
            if number >= CONTRACTS - 100 {
                samples.last.push(held + committed);
            }
        }
    }

    /// The answer to a message, and the time from its bytes to those of the answer.
    fn answer(&mut self, from: &Name, bytes: &[u8]) -> (Body, Duration) {
        let since = WallTime::now();
        let message = ContractMessage::decode(bytes).expect("an encoded message");
        self.participant.receive(from, message, NOW);
        let mut sent = None;
        while let Some(output) = self.participant.poll() {
            match output {
                ParticipantOutput::Send(_, message) => sent = Some((message.encode(NOW), message)),
                ParticipantOutput::Order(order) => {
                    if let Some(answer) = carry_out(&mut self.holds, order, NOW) {
                        self.participant.answered(answer, NOW);
                    }
                }
                _ => {}
            }
        }
        let elapsed = since.elapsed();
        (sent.expect("an answer").1.body, elapsed)
    }
}
