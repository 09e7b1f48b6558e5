//! Two sessions and the links between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use qfabric_types::{Instant, Nanos};

use super::{Link, LinkSettings};
use crate::{
    CarrierId, CarrierInfo, CarrierRoles, Config, EndReason, MessageNumber, Mode, Outcome, Output, Received, Session,
};

/// One of the two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    A,
    B,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// A message that arrived.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Instant,
    pub received: Received,
    pub data: Vec<u8>,
    pub holes: Vec<Range<usize>>,
}

/// One endpoint, and all that it has put out.
#[derive(Debug)]
pub struct End {
    pub session: Session,
    pub arrivals: Vec<Arrival>,
    pub outcomes: Vec<(MessageNumber, Outcome)>,
    /// First number and count.
    pub skipped: Vec<(MessageNumber, u64)>,
    pub modes: Vec<(Mode, MessageNumber)>,
    /// Time, carrier and bytes of each datagram that was sent, if the pair keeps them.
    pub sent: Vec<(Instant, CarrierId, Vec<u8>)>,
    pub has_peer_finished: bool,
    pub ended: Option<EndReason>,
}

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Instant,
    /// Keeps datagrams of one time in their order.
    order: u64,
    to: Side,
    carrier: CarrierId,
    bytes: Vec<u8>,
}

/// A path between both sides, over the carrier of the same number.
#[derive(Debug)]
struct Path {
    carrier: CarrierId,
    links: [Link; 2],
}

/// Two sessions and the paths between them. The clock of side B is ahead by `SKEW`.
#[derive(Debug)]
pub struct Pair {
    pub now: Instant,
    ends: [End; 2],
    paths: Vec<Path>,
    flights: BinaryHeap<Reverse<Flight>>,
    order: u64,
    /// Whether the bytes of sent datagrams are kept.
    pub keeps_sent: bool,
    /// Side A has the CPU at multiples of this time only; zero: always.
    pub cpu_every: Nanos,
}

impl Pair {
    /// Hosts have clocks with different origins.
    const SKEW: Nanos = Nanos::from_millis(5_000_000);
    /// A session that wants to act more often than this without a new input never comes to rest.
    const MOST_STEPS: u32 = 100_000;

    /// # Panics
    /// A configuration is not valid.
    pub fn new(a: Config, b: Config) -> Pair {
        let end = |config, side| End {
            session: Session::new(config, clock(Instant::ZERO, side)).expect("a valid configuration"),
            arrivals: Vec::new(),
            outcomes: Vec::new(),
            skipped: Vec::new(),
            modes: Vec::new(),
            sent: Vec::new(),
            has_peer_finished: false,
            ended: None,
        };
        let ends = [end(a, Side::A), end(b, Side::B)];
        let (paths, flights) = (Vec::new(), BinaryHeap::new());
        Pair { now: Instant::ZERO, ends, paths, flights, order: 0, keeps_sent: false, cpu_every: Nanos::ZERO }
    }

    /// A pair over one path whose directions are equal.
    pub fn over(a: Config, b: Config, link: LinkSettings, seed: u64) -> Pair {
        let mut pair = Pair::new(a, b);
        pair.connect(CarrierId(0), [link, link], seed, 1_414);
        pair
    }

    /// Attaches a new path to both sides. The first link is the one from A to B.
    ///
    /// # Panics
    /// The carrier exists.
    pub fn connect(&mut self, carrier: CarrierId, links: [LinkSettings; 2], seed: u64, max_datagram: u16) {
        let [there, back] = links;
        let links = [Link::new(there, seed), Link::new(back, seed.wrapping_add(1 << 32))];
        self.paths.push(Path { carrier, links });
        let overhead = there.overhead;
        let info = CarrierInfo { max_datagram, overhead, min_rtt: None, roles: CarrierRoles::Both };
        for side in [Side::A, Side::B] {
            let now = clock(self.now, side);
            self.end_mut(side).session.attach(now, carrier, info).expect("a new carrier");
            self.drain(side);
        }
    }

    /// Removes a path from both sides, with all datagrams on it.
    ///
    /// # Panics
    /// The carrier does not exist.
    pub fn disconnect(&mut self, carrier: CarrierId) {
        self.paths.retain(|path| path.carrier != carrier);
        for side in [Side::A, Side::B] {
            self.with(side, |session, now| session.detach(now, carrier).expect("an attached carrier"));
        }
    }

    /// The link of a path from this side to the other one.
    ///
    /// # Panics
    /// The path does not exist.
    pub fn link(&mut self, carrier: CarrierId, from: Side) -> &mut Link {
        let path = self.paths.iter_mut().find(|path| path.carrier == carrier).expect("a path of this carrier");
        &mut path.links[from as usize]
    }

    pub fn end(&self, side: Side) -> &End {
        &self.ends[side as usize]
    }

    pub fn end_mut(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    /// Calls a session, and carries out its outputs.
    pub fn with<T>(&mut self, side: Side, call: impl FnOnce(&mut Session, Instant) -> T) -> T {
        let now = clock(self.now, side);
        let result = call(&mut self.end_mut(side).session, now);
        self.drain(side);
        result
    }

    /// Runs until a time.
    ///
    /// # Panics
    /// A session does not come to rest.
    pub fn run_until(&mut self, end: Instant) {
        let mut steps = 0;
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            steps = if next > self.now { 0 } else { steps + 1 };
            assert!(steps < Pair::MOST_STEPS, "a session does not come to rest at {next:?}");
            self.now = self.now.max(next);
            self.step();
        }
        self.now = self.now.max(end);
    }

    pub fn run_for(&mut self, time: Nanos) {
        self.run_until(self.now + time);
    }

    fn next_time(&self) -> Option<Instant> {
        let flight = self.flights.peek().map(|Reverse(flight)| flight.at);
        let wakeup = |side| self.wakeup(side);
        [flight, wakeup(Side::A), wakeup(Side::B)].into_iter().flatten().min()
    }

    fn wakeup(&self, side: Side) -> Option<Instant> {
        self.end(side).session.next_wakeup().map(|at| self.runs_at(side, at - skew(side)))
    }

    /// The first time from `at` on at which a side has the CPU.
    pub fn runs_at(&self, side: Side, at: Instant) -> Instant {
        if side == Side::B || self.cpu_every == Nanos::ZERO {
            return at;
        }
        Instant::new(at.get().next_multiple_of(self.cpu_every.get()))
    }

    /// One arrival or one wake-up at the current time.
    fn step(&mut self) {
        if let Some(Reverse(flight)) = self.flights.peek().filter(|Reverse(flight)| flight.at <= self.now) {
            let Flight { to, carrier, bytes, .. } = flight.clone();
            self.flights.pop();
            self.with(to, |session, now| session.on_datagram(now, carrier, &bytes));
            return;
        }
        for side in [Side::A, Side::B] {
            if self.wakeup(side).is_some_and(|at| at <= self.now) {
                self.with(side, Session::on_timer);
            }
        }
    }

    fn drain(&mut self, side: Side) {
        while let Some(output) = self.end_mut(side).session.poll() {
            match output {
                Output::Datagram { carrier } => self.carry(side, carrier),
                Output::Received(received) => self.keep(side, received),
                Output::Skipped { first, count } => self.end_mut(side).skipped.push((first, count)),
                Output::Outcome { number, outcome, .. } => self.end_mut(side).outcomes.push((number, outcome)),
                Output::ModeChanged { mode, from } => self.end_mut(side).modes.push((mode, from)),
                Output::PeerFinished => self.end_mut(side).has_peer_finished = true,
                Output::Ended(reason) => self.end_mut(side).ended = Some(reason),
            }
        }
    }

    fn keep(&mut self, side: Side, received: Received) {
        let (at, end) = (self.now, self.end_mut(side));
        let (data, holes) = (end.session.message().to_vec(), end.session.holes().collect());
        end.arrivals.push(Arrival { at, received, data, holes });
    }

    fn carry(&mut self, from: Side, carrier: CarrierId) {
        let (now, keeps_sent) = (self.now, self.keeps_sent);
        let bytes = self.end(from).session.datagram().to_vec();
        if keeps_sent {
            self.end_mut(from).sent.push((now, carrier, bytes.clone()));
        }
        let Some(path) = self.paths.iter_mut().find(|path| path.carrier == carrier) else { return };
        let arrivals = path.links[from as usize].carry(now, bytes.len());
        for at in arrivals.into_iter().flatten() {
            self.order += 1;
            let at = self.runs_at(from.other(), at);
            let flight = Flight { at, order: self.order, to: from.other(), carrier, bytes: bytes.clone() };
            self.flights.push(Reverse(flight));
        }
    }
}

fn skew(side: Side) -> Nanos {
    if side == Side::B { Pair::SKEW } else { Nanos::ZERO }
}

/// The time on the clock of a side.
fn clock(now: Instant, side: Side) -> Instant {
    now + skew(side)
}
