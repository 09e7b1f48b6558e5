//! A simulated network: delays, losses and reordering from one seed, and a clock that jumps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::{Instant, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::world::{Delivered, World};
use crate::{Config, Destination, DestinationRef, Incarnation, Lane, Node, Notice, Output, SinkId, SourceId};

/// The behaviour of the network.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The same seed gives the same run.
    pub seed: u64,
    /// The number of hosts.
    pub hosts: usize,
    /// Shortest and longest delay.
    pub delay: (Nanos, Nanos),
    /// Added to the delay of frames that do not use the control lane: their queues are longer.
    pub data_delay: Nanos,
    /// Lost frames of the data lane, in thousandths.
    pub data_loss: u32,
    /// Lost frames of the control lane, in thousandths.
    pub control_loss: u32,
    /// Frames of one lane between two hosts may overtake each other, and arrive twice.
    pub disorder: bool,
    /// The largest difference between two clocks.
    pub skew: Nanos,
    /// The time after which a silent host is reported as gone.
    pub lease: Nanos,
}

impl Default for Settings {
    /// Five hosts; delays of 0.1 to 1 ms; no losses.
    fn default() -> Settings {
        Settings {
            seed: 0,
            hosts: 5,
            delay: (Nanos::from_micros(100), Nanos::from_millis(1)),
            data_delay: Nanos::ZERO,
            data_loss: 0,
            control_loss: 0,
            disorder: false,
            skew: Nanos::ZERO,
            lease: Nanos::from_millis(1_500),
        }
    }
}

/// Nodes over a simulated network.
#[derive(Debug)]
pub struct Memory {
    settings: Settings,
    rng: ChaCha8Rng,
    now: Instant,
    places: BTreeMap<Name, Place>,
    cuts: BTreeSet<(Name, Name)>,
    flying: BinaryHeap<Reverse<Flight>>,
    flights: u64,
    /// The arrival time of the last frame of a lane between two hosts; the next frame arrives after it.
    tails: BTreeMap<(Name, Name, Lane), Instant>,
    /// Changes the default configuration of a node.
    configure: fn(Config) -> Config,
}

#[derive(Debug)]
struct Place {
    node: Option<Node>,
    start: u64,
    ahead: u64,
    wires: Wires,
}

/// A host's side of the network.
#[derive(Debug, Default)]
struct Wires {
    out: Vec<(Destination, Lane, Vec<u8>)>,
    listens: BTreeSet<ChannelId>,
    delivered: Vec<Delivered>,
    notices: Vec<Notice>,
    private: Vec<(Name, Vec<u8>)>,
    ready: Vec<SinkId>,
    writable: Vec<SourceId>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Instant,
    order: u64,
    to: Name,
    what: Cargo,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cargo {
    /// With the number of the sender's start, and of the receiver's.
    Frame {
        from: Name,
        starts: (u64, u64),
        lane: Lane,
        bytes: Vec<u8>,
    },
    Appeared(Name),
    Vanished(Name),
}

impl Wires {
    /// Carries out the node's outputs.
    fn carry_out(&mut self, node: &mut Node, now: Instant) {
        while let Some(output) = node.poll() {
            match output {
                Output::Send(to, lane, frame) => self.out.push((to, lane, node.frame(frame).to_vec())),
                Output::Listen(channel) => _ = self.listens.insert(channel),
                Output::Ignore(channel) => _ = self.listens.remove(&channel),
                Output::Ready(sink) => {
                    self.ready.push(sink);
                    self.delivered.extend(Delivered::take_all(node, sink, now));
                }
                Output::Writable(source) => self.writable.push(source),
                Output::Private(from, bytes) => self.private.push((from, bytes)),
                Output::Notice(notice) => self.notices.push(notice),
            }
        }
    }
}

impl Memory {
    /// Hosts `h0`, `h1`, … that have just appeared to each other.
    pub fn new(settings: Settings) -> Memory {
        Memory::configured(settings, |config| config)
    }

    /// As [`Memory::new`], with other configurations.
    pub fn configured(settings: Settings, configure: fn(Config) -> Config) -> Memory {
        let mut world = Memory {
            rng: ChaCha8Rng::seed_from_u64(settings.seed),
            settings,
            now: Instant::new(1_000_000_000_000),
            places: BTreeMap::new(),
            cuts: BTreeSet::new(),
            flying: BinaryHeap::new(),
            flights: 0,
            tails: BTreeMap::new(),
            configure,
        };
        for number in 0..settings.hosts {
            let ahead = world.rng.random_range(0..=settings.skew.get());
            let place = Place { node: None, start: 0, ahead, wires: Wires::default() };
            world.places.insert(format!("h{number}").parse().expect("a name"), place);
        }
        for host in world.hosts() {
            world.start(&host);
        }
        world.settle();
        world
    }

    /// Sinks that became ready, and sources that may go on, since the last call.
    pub fn signals(&mut self, host: &Name) -> (Vec<SinkId>, Vec<SourceId>) {
        let wires = &mut self.place(host).wires;
        (std::mem::take(&mut wires.ready), std::mem::take(&mut wires.writable))
    }

    /// The private messages that a host got since the last call, with their senders.
    pub fn private(&mut self, host: &Name) -> Vec<(Name, Vec<u8>)> {
        std::mem::take(&mut self.place(host).wires.private)
    }

    /// From now on this many of thousand frames of the data lane are lost.
    pub fn lose_data(&mut self, per_thousand: u32) {
        self.settings.data_loss = per_thousand;
    }

    pub fn is_up(&self, host: &Name) -> bool {
        self.places[host].node.is_some()
    }

    /// A host's node, for reading.
    pub fn node(&self, host: &Name) -> &Node {
        self.places[host].node.as_ref().expect("the host is up")
    }

    fn place(&mut self, host: &Name) -> &mut Place {
        self.places.get_mut(host).expect("a host of this world")
    }

    fn call<R>(&mut self, host: &Name, act: impl FnOnce(&mut Node, Instant) -> R) -> Option<R> {
        let now = self.now;
        let place = self.place(host);
        let local = now + Nanos::new(place.ahead);
        let node = place.node.as_mut()?;
        let result = act(node, local);
        place.wires.carry_out(node, local);
        for (to, lane, frame) in std::mem::take(&mut place.wires.out) {
            self.post(host, to.as_ref(), lane, &frame);
        }
        Some(result)
    }

    fn post(&mut self, from: &Name, destination: DestinationRef<'_>, lane: Lane, frame: &[u8]) {
        for to in self.hosts() {
            let meant = match destination {
                DestinationRef::Everyone => true,
                DestinationRef::Channel(channel) => self.places[&to].wires.listens.contains(channel),
                DestinationRef::Host(host) => *host == to,
            };
            if meant && to != *from && !self.is_cut(from, &to) && self.places[&to].node.is_some() {
                self.fly(from, &to, lane, frame);
            }
        }
    }

    fn fly(&mut self, from: &Name, to: &Name, lane: Lane, frame: &[u8]) {
        let Settings { delay, data_delay, data_loss, control_loss, disorder, .. } = self.settings;
        let (loss, more) = if lane == Lane::Control { (control_loss, Nanos::ZERO) } else { (data_loss, data_delay) };
        let copies = if disorder && self.rng.random_range(0..20) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            if self.rng.random_range(0..1000) < loss {
                continue;
            }
            let mut at = self.now + more + Nanos::new(self.rng.random_range(delay.0.get()..=delay.1.get()));
            if !disorder {
                let tail = self.tails.entry((from.clone(), to.clone(), lane)).or_insert(at);
                at = at.max(*tail);
                *tail = at;
            }
            let starts = (self.places[from].start, self.places[to].start);
            self.send_off(at, to, Cargo::Frame { from: from.clone(), starts, lane, bytes: frame.to_vec() });
        }
    }

    fn send_off(&mut self, at: Instant, to: &Name, what: Cargo) {
        self.flights += 1;
        self.flying.push(Reverse(Flight { at, order: self.flights, to: to.clone(), what }));
    }

    fn land(&mut self, flight: Flight) {
        let to = flight.to;
        match flight.what {
            Cargo::Frame { from, starts, lane, bytes } => {
                // A connection ends when one of its hosts ends.
                let same = (self.places[&from].start, self.places[&to].start) == starts;
                if same && !self.is_cut(&from, &to) {
                    self.call(&to, |node, now| node.arrive(&from, lane, &bytes, now));
                }
            }
            Cargo::Appeared(host) if !self.is_cut(&host, &to) && self.is_up(&host) => {
                self.call(&to, |node, now| node.appeared(&host, now));
            }
            Cargo::Vanished(host) if self.is_cut(&host, &to) || !self.is_up(&host) => {
                self.call(&to, |node, now| node.vanished(&host, now));
            }
            Cargo::Appeared(_) | Cargo::Vanished(_) => {}
        }
    }

    fn is_cut(&self, one: &Name, other: &Name) -> bool {
        self.cuts.contains(&pair(one, other))
    }

    /// Each host appears to the other. A host that was away only briefly is first reported as gone.
    fn introduce(&mut self, one: &Name, other: &Name) {
        let at = self.now + self.settings.delay.1;
        self.send_off(at, one, Cargo::Appeared(other.clone()));
        self.send_off(at, other, Cargo::Appeared(one.clone()));
    }

    fn miss(&mut self, one: &Name, other: &Name) {
        let at = self.now + self.settings.lease;
        self.send_off(at, one, Cargo::Vanished(other.clone()));
        self.send_off(at, other, Cargo::Vanished(one.clone()));
    }

    fn next_wakeup(&self) -> Option<(Instant, Name)> {
        let due = self.places.iter().filter_map(|(name, place)| {
            let at = place.node.as_ref()?.next_wakeup()? - Nanos::new(place.ahead);
            Some((at, name))
        });
        due.min().map(|(at, name)| (at, name.clone()))
    }
}

fn pair(one: &Name, other: &Name) -> (Name, Name) {
    (one.min(other).clone(), one.max(other).clone())
}

impl World for Memory {
    fn hosts(&self) -> Vec<Name> {
        self.places.keys().cloned().collect()
    }

    fn with<R>(&mut self, host: &Name, act: impl FnOnce(&mut Node, Instant) -> R) -> R {
        self.call(host, act).expect("the host is up")
    }

    fn run_for(&mut self, time: Nanos) {
        let end = self.now + time;
        loop {
            let wakeup = self.next_wakeup();
            let flight = self.flying.peek().map(|Reverse(flight)| flight.at);
            let next = [flight, wakeup.as_ref().map(|(at, _)| *at)].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if flight == Some(next) {
                let Reverse(flight) = self.flying.pop().expect("it was seen");
                self.land(flight);
            } else if let Some((_, host)) = wakeup {
                self.call(&host, |node, now| node.wake(now));
                let again = self.places[&host].node.as_ref().and_then(Node::next_wakeup);
                let local = self.now + Nanos::new(self.places[&host].ahead);
                assert!(again.is_none_or(|again| again > local), "{host} has done what was due");
            }
        }
        self.now = end;
    }

    fn cut(&mut self, one: &Name, other: &Name) {
        self.cuts.insert(pair(one, other));
        self.miss(one, other);
    }

    fn heal(&mut self, one: &Name, other: &Name) {
        self.cuts.remove(&pair(one, other));
        self.introduce(one, other);
    }

    fn kill(&mut self, host: &Name) {
        let place = self.place(host);
        place.node = None;
        place.wires = Wires::default();
        for other in self.hosts() {
            if other != *host {
                let at = self.now + self.settings.lease;
                self.send_off(at, &other, Cargo::Vanished(host.clone()));
            }
        }
    }

    fn start(&mut self, host: &Name) {
        let configure = self.configure;
        let now = self.now;
        let place = self.place(host);
        place.start += 1;
        let incarnation = Incarnation::new(place.start as u32, 7);
        let mut config = Config::new(host.clone(), incarnation);
        let local = now + Nanos::new(place.ahead);
        config.unix_offset_ns = 0_u64.wrapping_sub(place.ahead);
        place.node = Some(Node::new(configure(config), local));
        place.wires = Wires::default();
        for other in self.hosts() {
            if other != *host && self.is_up(&other) {
                self.introduce(host, &other);
            }
        }
    }

    fn delivered(&mut self, host: &Name) -> Vec<Delivered> {
        std::mem::take(&mut self.place(host).wires.delivered)
    }

    fn notices(&mut self, host: &Name) -> Vec<Notice> {
        std::mem::take(&mut self.place(host).wires.notices)
    }
}
