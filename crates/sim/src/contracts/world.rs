//! Hosts on a network that loses, delays, reorders and duplicates messages.

use std::collections::BTreeMap;

use qfabric_host::manager::contracts::{ContractMessage, CoordinatorOutput, NoConsent, ParticipantOutput, Timing};
use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, Owner, RandomNumbers, Resources};

use super::host::{Clock, Host, Output};
use super::workload::{Arrival, capacity, draw, host_name};

const OWNER: Owner = Owner { uid: 1000, gid: 1000 };

/// The network and the hosts.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub hosts: usize,
    /// Part of the messages that are lost.
    pub loss: f64,
    /// Part of the messages that arrive twice.
    pub duplicates: f64,
    /// Every message is delayed by a random time up to this; so messages overtake each other.
    pub delay: Nanos,
    /// Clocks run at most this much too fast or too slow; at most 1/128.
    pub skew: f64,
    /// Probability that an application consents, and that an upgrade is accepted.
    pub consent: f64,
    /// How often the link of a random host is closed and opened again, in the first 10 s.
    pub closings: u32,
    pub timing: Timing,
}

/// A host is killed at one of its outputs, which is lost with all later ones of the same call, and starts again.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    pub host: usize,
    /// Number of the output, from 1.
    pub at_output: u64,
    /// Time until the restart.
    pub pause: Nanos,
}

/// The counts of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub requests: u64,
    pub in_force: u64,
    /// In force with less than was wanted at first.
    pub partial: u64,
    pub refused: u64,
    /// Lost by a crash of their coordinator before a decision.
    pub crashed: u64,
    /// Ended because of a host.
    pub ended: u64,
    pub upgraded: u64,
    pub messages: u64,
    /// The largest number of attempts of one contract.
    pub rounds: u32,
    /// Times from request until in force, sorted.
    pub setup: Vec<Nanos>,
    /// Outputs of each host.
    pub outputs: Vec<u64>,
}

#[derive(Debug)]
enum Event {
    Apply(usize),
    Arrive { to: usize, from: Name, bytes: Vec<u8> },
    Wake { host: usize, serial: u64 },
    Consent { host: usize, id: JointId, round: u32, is_accepted: bool },
    Close(usize),
    End { host: usize, id: JointId },
    Restart(usize),
}

/// What the simulation knows of a contract.
#[derive(Debug)]
struct Track {
    arrival: usize,
    is_decided: bool,
    ended: Option<Instant>,
}

/// The simulated hosts.
#[derive(Debug)]
pub struct World {
    conditions: Conditions,
    seed: u64,
    random: RandomNumbers,
    arrivals: Vec<Arrival>,
    crash: Option<Crash>,
    hosts: Vec<Host>,
    queue: BTreeMap<(Instant, u64), Event>,
    queued: u64,
    now: Instant,
    tracks: BTreeMap<JointId, Track>,
    report: Report,
}

impl World {
    pub fn new(conditions: Conditions, arrivals: Vec<Arrival>, crash: Option<Crash>, seed: u64) -> World {
        let mut random = RandomNumbers::new(seed);
        let hosts = (0..conditions.hosts).map(|index| {
            let rate = 1.0 + conditions.skew * (2.0 * random.uniform() - 1.0);
            let clock = Clock { offset: Nanos::new(random.draw() >> 20), rate };
            Host::new(host_name(index), clock, conditions.timing, random.draw())
        });
        let hosts = hosts.collect();
        let (queue, tracks, report) = Default::default();
        let now = Instant::ZERO;
        let mut world =
            World { conditions, seed, random, arrivals, crash, hosts, queue, queued: 0, now, tracks, report };
        let times: Vec<Instant> = world.arrivals.iter().map(|arrival| arrival.at).collect();
        times.into_iter().enumerate().for_each(|(index, at)| world.push(at, Event::Apply(index)));
        for _ in 0..conditions.closings {
            let (host, at) = (draw(&mut world.random, conditions.hosts), world.random.uniform() * 1e10);
            world.push(Instant::new(at as u64), Event::Close(host));
        }
        world
    }

    /// Runs until nothing happens any more: all contracts were refused, or were in force and ended.
    ///
    /// # Panics
    /// A promise of the protocol does not hold.
    pub fn run(mut self) -> Report {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now = at;
            let host = self.handle(event);
            self.hosts[host].holds.check();
            self.check();
        }
        self.check_quiet();
        self.report.setup.sort();
        self.report.outputs = self.hosts.iter().map(|host| host.outputs).collect();
        self.report
    }

    /// Returns the host of the event.
    fn handle(&mut self, event: Event) -> usize {
        let now = self.now;
        let host = match event {
            Event::Apply(arrival) => self.apply(arrival),
            Event::Arrive { to, from, bytes } => {
                let message = ContractMessage::decode(&bytes).expect("an encoded message");
                self.report.rounds = self.report.rounds.max(message.round);
                let host = &mut self.hosts[to];
                if host.is_up {
                    host.receive(&from, message, now);
                }
                to
            }
            Event::Wake { host, serial } => {
                // A wake that a later one replaced: the later one is in the queue.
                if self.hosts[host].wake_serial != serial {
                    return host;
                }
                self.hosts[host].wake(now);
                host
            }
            Event::Consent { host, id, round, is_accepted } => {
                let local = self.hosts[host].clock.local(now);
                let answer = if is_accepted { Ok(()) } else { Err(NoConsent::Declined) };
                self.hosts[host].participant.consented(&id, round, answer, local);
                host
            }
            Event::Close(host) => {
                self.hosts[host].close_link(now);
                host
            }
            Event::End { host, id } => {
                if self.hosts[host].coordinator.end(&id) {
                    self.ended(&id);
                }
                host
            }
            Event::Restart(host) => {
                self.hosts[host].is_up = true;
                host
            }
        };
        self.drain(host);
        host
    }

    fn apply(&mut self, index: usize) -> usize {
        let arrival = &self.arrivals[index];
        let (host, number) = (arrival.initiator, self.random.draw());
        self.report.requests += 1;
        let site = &mut self.hosts[host];
        if !site.is_up {
            self.report.crashed += 1;
            return host;
        }
        let local = site.clock.local(self.now);
        let id = site.coordinator.apply(number, OWNER, &arrival.request, local).expect("few contracts");
        self.tracks.insert(id, Track { arrival: index, is_decided: false, ended: None });
        host
    }

    /// Carries out the outputs of a host, up to its crash.
    fn drain(&mut self, host: usize) {
        while let Some(output) = self.hosts[host].poll(self.now) {
            let count = self.hosts[host].outputs;
            if let Some(crash) = self.crash.filter(|crash| crash.host == host && crash.at_output == count) {
                return self.crash(crash);
            }
            match output {
                Output::Coordinator(output) => self.coordinated(host, output),
                Output::Participant(output) => self.participated(host, output),
            }
        }
        if let Some(at) = self.hosts[host].next_wakeup().filter(|_| self.hosts[host].is_up) {
            self.hosts[host].wake_serial += 1;
            let serial = self.hosts[host].wake_serial;
            self.push(at.max(self.now), Event::Wake { host, serial });
        }
    }

    fn crash(&mut self, crash: Crash) {
        let seed = self.random.draw();
        let host = &mut self.hosts[crash.host];
        host.crash(self.conditions.timing, seed, self.now);
        let (name, now) = (host.name.clone(), self.now);
        let of_host = self.tracks.iter_mut().filter(|(id, track)| id.host == name && track.ended.is_none());
        for (_, track) in of_host {
            track.ended = Some(now);
            self.report.crashed += u64::from(!std::mem::replace(&mut track.is_decided, true));
        }
        self.push(now + crash.pause, Event::Restart(crash.host));
    }

    fn coordinated(&mut self, host: usize, output: CoordinatorOutput) {
        match output {
            CoordinatorOutput::Send(to, message) => self.send(host, &to, &message),
            CoordinatorOutput::InForce { id, granted } => self.in_force(host, id, &granted),
            CoordinatorOutput::Refused { id, .. } => {
                self.decided(&id);
                self.report.refused += 1;
                self.ended(&id);
            }
            CoordinatorOutput::Ended { id, .. } => {
                self.report.ended += 1;
                self.ended(&id);
            }
            CoordinatorOutput::Upgrade { id, host: site, .. } => {
                if self.random.uniform() < self.conditions.consent {
                    let local = self.hosts[host].clock.local(self.now);
                    self.hosts[host].coordinator.upgrade(&id, &site, local);
                }
            }
            CoordinatorOutput::Upgraded { .. } => self.report.upgraded += 1,
        }
    }

    fn in_force(&mut self, host: usize, id: JointId, granted: &BTreeMap<Name, Resources>) {
        self.decided(&id);
        let track = &self.tracks[&id];
        let arrival = &self.arrivals[track.arrival];
        let is_partial = arrival.request.parts().iter().any(|part| !granted[&part.host].covers(&part.wanted));
        assert_eq!(granted.len(), arrival.request.parts().len(), "seed {}: {id} is not on all hosts", self.seed);
        self.report.in_force += 1;
        self.report.partial += u64::from(is_partial);
        self.report.setup.push(self.now.since(arrival.at));
        let end = self.now + arrival.lifetime;
        self.push(end, Event::End { host, id });
    }

    fn participated(&mut self, host: usize, output: ParticipantOutput) {
        match output {
            ParticipantOutput::Send(to, message) => self.send(host, &to, &message),
            ParticipantOutput::Consent { id, round, .. } => {
                let is_accepted = self.random.uniform() < self.conditions.consent;
                // Some answers come too late.
                let time = self.random.uniform() * self.conditions.timing.hold.as_f64() / 3.0;
                self.push(self.now + Nanos::from_f64(time), Event::Consent { host, id, round, is_accepted });
            }
            ParticipantOutput::Order(_) | ParticipantOutput::InForce { .. } | ParticipantOutput::Ended { .. } => {}
        }
    }

    /// A message to the own host takes no network.
    fn send(&mut self, from: usize, to: &Name, message: &ContractMessage) {
        let Some(target) = self.hosts.iter().position(|host| host.name == *to) else { return };
        let bytes = message.encode(self.hosts[from].clock.local(self.now));
        let from_name = self.hosts[from].name.clone();
        if target == from {
            return self.push(self.now, Event::Arrive { to: target, from: from_name, bytes });
        }
        self.report.messages += 1;
        let copies = 1 + usize::from(self.random.uniform() < self.conditions.duplicates);
        for _ in 0..copies {
            let delay = Nanos::from_f64(self.random.uniform() * self.conditions.delay.as_f64());
            if self.random.uniform() >= self.conditions.loss {
                let (from, bytes) = (from_name.clone(), bytes.clone());
                self.push(self.now + delay, Event::Arrive { to: target, from, bytes });
            }
        }
    }

    fn decided(&mut self, id: &JointId) {
        let Some(track) = self.tracks.get_mut(id) else { return };
        assert!(!track.is_decided, "seed {}: {id} was decided twice", self.seed);
        track.is_decided = true;
    }

    fn ended(&mut self, id: &JointId) {
        if let Some(track) = self.tracks.get_mut(id) {
            track.ended = Some(self.now);
        }
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }

    fn check(&mut self) {
        let mut over = Vec::new();
        for (id, track) in &self.tracks {
            match track.ended {
                Some(ended) if self.is_over(ended) => over.push(id.clone()),
                Some(_) => {}
                None => self.check_living(id, track),
            }
        }
        over.iter().for_each(|id| self.check_over(id));
    }

    /// Whether the last message of a contract has arrived a hold ago.
    fn is_over(&self, ended: Instant) -> bool {
        self.is_hold_over(ended + self.conditions.delay)
    }

    fn is_hold_over(&self, since: Instant) -> bool {
        let hold = Nanos::from_f64(self.conditions.timing.hold.as_f64() * (1.0 + 2.0 * self.conditions.skew));
        self.now > since + hold
    }

    /// Nothing is held any more. No message is left that could change that, so the contract is forgotten.
    fn check_over(&mut self, id: &JointId) {
        let track = self.tracks.remove(id).expect("a known contract");
        assert!(track.is_decided, "seed {}: {id} ended without a decision", self.seed);
        for host in &self.hosts {
            let held = host.holds.get(id).is_some();
            assert!(!held, "seed {}: {id} ended {:?}, still held on {}", self.seed, track.ended, host.name);
        }
    }

    fn check_living(&self, id: &JointId, track: &Track) {
        let arrival = &self.arrivals[track.arrival];
        let host = &self.hosts[arrival.initiator];
        let longest = self.conditions.timing.longest() + arrival.request.patience();
        let longest = Nanos::from_f64(longest.as_f64() * (1.0 + 2.0 * self.conditions.skew));
        let age = self.now.since(arrival.at);
        assert!(track.is_decided || age <= longest, "seed {}: {id} has no decision after {age}", self.seed);
        for (name, granted) in host.coordinator.granted(id).unwrap_or_default() {
            let site = self.hosts.iter().find(|host| host.name == name).expect("a known host");
            // A coordinator relies on a host that crashed, or lost a link, for the rest of a hold.
            let lost = site.crashed.max(site.closed);
            if lost.is_none_or(|lost| self.is_hold_over(lost)) {
                let local = site.clock.local(self.now);
                let is_valid = site.holds.get(id).is_some_and(|held| held.until > local);
                let committed = site.holds.committed(id).filter(|_| is_valid && site.holds.is_whole(id));
                let is_kept = committed.is_some_and(|committed| committed.covers(&granted));
                assert!(is_kept, "seed {}: {id} is in force, and not committed on {name}", self.seed);
            }
        }
    }

    /// After quiet everything is free, and every contract has a decision.
    fn check_quiet(&self) {
        for host in &self.hosts {
            assert_eq!(host.holds.free(), capacity(), "seed {}: {} leaks", self.seed, host.name);
            assert_eq!(host.participant.contracts(), 0, "seed {}: {}", self.seed, host.name);
            assert_eq!(host.coordinator.contracts().count(), 0, "seed {}: {}", self.seed, host.name);
        }
        assert!(self.tracks.values().all(|track| track.is_decided), "seed {}", self.seed);
    }
}
