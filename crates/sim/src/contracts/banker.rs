//! The rivals: one banker that knows all claims and all hosts, and hold-and-wait.
//!
//! A process claims the resources of its hosts one after the other and keeps what it has while it waits. Under
//! [`Policy::Banker`] a claim is granted only if every process can still end when all ask for the rest of their
//! claims (Silberschatz and Galvin, as QualMan §2.3 suggests); under [`Policy::HoldAndWait`] as soon as it fits.

use std::collections::BTreeMap;

use qfabric_types::{Instant, Nanos, RandomNumbers};

use super::workload::{Arrival, capacity, host_name};

/// The amounts of all resources of all hosts.
type Vector = Vec<u64>;

/// Resources of one host.
const KINDS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Banker,
    HoldAndWait,
}

/// The counts of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub in_force: u64,
    pub messages: u64,
    pub setup: Vec<Nanos>,
    /// Processes that were in a deadlock when their patience ended.
    pub deadlocked: u64,
}

#[derive(Debug)]
enum Event {
    Arrive(usize),
    /// The next claim of a process reaches the banker.
    Claim(usize),
    Granted(usize),
    Impatient(usize),
    End(usize),
}

#[derive(Debug)]
struct Process {
    /// The claims, one per host.
    claims: Vec<Vector>,
    held: Vector,
    granted: usize,
    is_waiting: bool,
}

impl Process {
    fn need(&self) -> Vector {
        self.claims[self.granted..].iter().fold(vec![0; self.held.len()], |sum, claim| plus(&sum, claim))
    }
}

pub(super) struct Bank<'a> {
    policy: Policy,
    arrivals: &'a [Arrival],
    hosts: usize,
    delay: Nanos,
    patience: Nanos,
    random: RandomNumbers,
    free: Vector,
    processes: BTreeMap<usize, Process>,
    queue: BTreeMap<(Instant, u64), Event>,
    queued: u64,
    outcome: Outcome,
}

impl Bank<'_> {
    /// Runs all requests. Messages take a random time up to `delay`; a process gives up after `patience`.
    pub(super) fn run(
        policy: Policy,
        arrivals: &[Arrival],
        hosts: usize,
        (delay, patience): (Nanos, Nanos),
        seed: u64,
    ) -> Outcome {
        let free = (0..hosts).flat_map(|_| units(&capacity())).collect();
        let (processes, queue, outcome) = Default::default();
        let random = RandomNumbers::new(seed);
        let mut bank =
            Bank { policy, arrivals, hosts, delay, patience, random, free, processes, queue, queued: 0, outcome };
        for (index, arrival) in arrivals.iter().enumerate() {
            bank.push(arrival.at, Event::Arrive(index));
        }
        while let Some(((now, _), event)) = bank.queue.pop_first() {
            bank.handle(event, now);
        }
        bank.outcome.setup.sort();
        bank.outcome
    }

    fn handle(&mut self, event: Event, now: Instant) {
        match event {
            Event::Arrive(index) => self.arrive(index, now),
            Event::Claim(index) => {
                if let Some(process) = self.processes.get_mut(&index) {
                    process.is_waiting = true;
                    self.serve(now);
                }
            }
            Event::Granted(index) => self.granted(index, now),
            Event::Impatient(index) => self.impatient(index, now),
            Event::End(index) => self.release(index, now),
        }
    }

    fn arrive(&mut self, index: usize, now: Instant) {
        let claims = self.arrivals[index].request.parts().iter().map(|part| {
            let host = (0..self.hosts).find(|host| host_name(*host) == part.host).expect("a known host");
            let mut claim = vec![0; self.hosts * KINDS];
            claim[host * KINDS..(host + 1) * KINDS].copy_from_slice(&units(&part.wanted));
            claim
        });
        let claims = claims.collect();
        let held = vec![0; self.hosts * KINDS];
        self.processes.insert(index, Process { claims, held, granted: 0, is_waiting: false });
        self.message(now, Event::Claim(index));
        self.push(now + self.patience, Event::Impatient(index));
    }

    fn granted(&mut self, index: usize, now: Instant) {
        let Some(process) = self.processes.get(&index) else { return };
        if process.granted < process.claims.len() {
            return self.message(now, Event::Claim(index));
        }
        self.outcome.in_force += 1;
        self.outcome.setup.push(now.since(self.arrivals[index].at));
        self.push(now + self.arrivals[index].lifetime, Event::End(index));
    }

    fn impatient(&mut self, index: usize, now: Instant) {
        let Some(process) = self.processes.get(&index) else { return };
        if process.granted < process.claims.len() {
            self.outcome.deadlocked += u64::from(self.is_deadlocked(index));
            self.release(index, now);
        }
    }

    fn release(&mut self, index: usize, now: Instant) {
        let Some(process) = self.processes.remove(&index) else { return };
        self.outcome.messages += 1;
        self.free = plus(&self.free, &process.held);
        self.serve(now);
    }

    /// Grants claims in order of arrival until no further one can be granted.
    fn serve(&mut self, now: Instant) {
        while let Some(index) = self.next_served() {
            let process = self.processes.get_mut(&index).expect("a known process");
            let claim = process.claims[process.granted].clone();
            process.held = plus(&process.held, &claim);
            (process.granted, process.is_waiting) = (process.granted + 1, false);
            self.free = minus(&self.free, &claim);
            self.message(now, Event::Granted(index));
        }
    }

    fn next_served(&self) -> Option<usize> {
        let waiting = self.processes.iter().filter(|(_, process)| process.is_waiting);
        let served = waiting.map(|(index, process)| (*index, &process.claims[process.granted]));
        served
            .filter(|(_, claim)| covers(&self.free, claim))
            .find(|(index, claim)| self.policy == Policy::HoldAndWait || self.is_safe(*index, claim))
            .map(|(index, _)| index)
    }

    /// Whether all processes can end, in some order, after this claim is granted.
    fn is_safe(&self, index: usize, claim: &Vector) -> bool {
        let mut free = minus(&self.free, claim);
        let mut left: Vec<(Vector, Vector)> = Vec::new();
        for (other, process) in &self.processes {
            let (need, held) = (process.need(), process.held.clone());
            let is_asking = *other == index;
            left.push(if is_asking { (minus(&need, claim), plus(&held, claim)) } else { (need, held) });
        }
        end_all(&mut free, &mut left);
        left.is_empty()
    }

    /// Whether a process can never get its present claim, even if all that can end do so.
    fn is_deadlocked(&self, index: usize) -> bool {
        let process = &self.processes[&index];
        let mut free = self.free.clone();
        let others = self.processes.iter().filter(|(other, _)| **other != index);
        let mut others: Vec<(Vector, Vector)> =
            others.map(|(_, process)| (process.need(), process.held.clone())).collect();
        end_all(&mut free, &mut others);
        process.is_waiting && !covers(&free, &process.claims[process.granted])
    }

    fn message(&mut self, now: Instant, event: Event) {
        self.outcome.messages += 1;
        let delay = Nanos::from_f64(self.random.uniform() * self.delay.as_f64());
        self.push(now + delay, event);
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }
}

/// Removes the processes whose need is free, one after the other, and frees what they hold.
fn end_all(free: &mut Vector, left: &mut Vec<(Vector, Vector)>) {
    while let Some(at) = left.iter().position(|(need, _)| covers(free, need)) {
        let (_, held) = left.swap_remove(at);
        *free = plus(free, &held);
    }
}

fn units(resources: &qfabric_types::Resources) -> [u64; KINDS] {
    ["cpu", "memory", "network eth0 out"].map(|name| resources.units(&name.parse().expect("a resource")))
}

fn plus(a: &Vector, b: &Vector) -> Vector {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn minus(a: &Vector, b: &Vector) -> Vector {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn covers(a: &Vector, b: &Vector) -> bool {
    a.iter().zip(b).all(|(a, b)| a >= b)
}
