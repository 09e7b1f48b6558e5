//! Two sessions of METP over a network that loses, repeats, reorders, delays and alters datagrams.

use std::collections::BTreeSet;

use qfabric_metp::{
    CarrierId, CarrierInfo, CarrierRoles, Config, DeliveryOrder, EndReason, FrameKind, Mode, Outgoing, Output,
    Received, Session,
};
use qfabric_types::{BitRate, Bytes, Instant, Nanos};

use crate::Script;

const BEGIN: Instant = Instant::new(1_000_000_000_000);
const MEMORY: Bytes = Bytes::new(64 * 1024);
const LARGEST: u64 = 20_000;
/// Datagrams in the network; a further one is lost.
const MOST_FLYING: usize = 64;
/// Steps of the end: the messages in flight need some thousands, even if most of their datagrams are lost.
const MOST_STEPS: u32 = 200_000;

/// Each accepted message has exactly one outcome, none is delivered twice, memory is bounded, and both sessions end. If
/// no datagram was altered, every byte is the one that was sent. If the network then delivers everything, and neither
/// side closed or was silent, both sides end with `Finished`.
pub fn metp_pair(bytes: &[u8]) {
    let mut script = Script(bytes);
    let options = script.byte();
    let mut network = Network::new(options);
    while !script.is_over() {
        network.step(&mut script);
        network.check();
    }
    network.end();
}

struct Network {
    ends: [End; 2],
    now: Instant,
    /// The receiver of each datagram, and its bytes.
    flying: Vec<(usize, Vec<u8>)>,
    /// Whether the script may alter datagrams, and whether it has.
    may_alter: bool,
    is_altered: bool,
    is_closed: bool,
}

struct End {
    session: Session,
    order: DeliveryOrder,
    /// Size of each accepted message.
    sizes: Vec<usize>,
    outcomes: BTreeSet<u64>,
    delivered: BTreeSet<u64>,
    ended: Option<EndReason>,
}

impl End {
    fn new(mode: Mode, order: DeliveryOrder) -> End {
        let config = Config {
            tag: 0x7171,
            largest_message: Bytes::new(LARGEST),
            messages_in_flight: 16,
            send_memory: MEMORY,
            receive_memory: MEMORY,
            rate: BitRate::new(50_000_000),
            bucket: Bytes::new(20_000),
            mode,
            order,
            ..Config::default()
        };
        let mut session = Session::new(config, BEGIN).expect("a valid configuration");
        let info = CarrierInfo { max_datagram: 1_400, overhead: 60, min_rtt: None, roles: CarrierRoles::Both };
        session.attach(BEGIN, CarrierId(0), info).expect("the first carrier");
        let (sizes, outcomes, delivered) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        End { session, order, sizes, outcomes, delivered, ended: None }
    }

    fn deliver(&mut self, received: Received, sizes: &[usize], is_altered: bool) {
        let (number, data) = (received.number.get(), self.session.message());
        assert!(self.delivered.insert(number), "message {number} is delivered twice");
        assert_eq!(data.len() as u64, received.size.get());
        let missing: usize = self.session.holes().map(|hole| hole.len()).sum();
        assert_eq!(missing as u64, received.size.get() - received.arrived.get());
        if is_altered {
            return;
        }
        assert!(self.order == DeliveryOrder::WhenComplete || self.delivered.last() == Some(&number), "out of order");
        assert_eq!(data.len(), sizes[number as usize]);
        let holes: Vec<_> = self.session.holes().collect();
        let sent = |at: usize| if holes.iter().any(|hole| hole.contains(&at)) { 0 } else { byte(number, at) };
        assert!(data.iter().enumerate().all(|(at, one)| *one == sent(at)), "message {number} has other bytes");
    }
}

/// The byte of a message at a position; never zero.
fn byte(number: u64, at: usize) -> u8 {
    (number as usize * 17 + at * 31) as u8 | 1
}

impl Network {
    fn new(options: u8) -> Network {
        let flag = |bit: u8| options & 1 << bit != 0;
        let mode = if flag(0) { Mode::PartiallyReliable } else { Mode::TotallyReliable };
        let order = if flag(1) { DeliveryOrder::WhenComplete } else { DeliveryOrder::InOrder };
        let ends = [End::new(mode, order), End::new(mode, order)];
        let (flying, may_alter) = (Vec::new(), flag(2));
        Network { ends, now: BEGIN, flying, may_alter, is_altered: false, is_closed: false }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let (kind, side) = (script.below(12), script.below(2));
        let now = self.now;
        match kind {
            0 | 1 => self.wait(u64::from(script.half())),
            2 | 3 => self.send(side, script),
            4..=6 => self.pass(script.below(MOST_FLYING)),
            7 => _ = self.take(script.below(MOST_FLYING)),
            8 => self.repeat(script.below(MOST_FLYING)),
            9 => self.alter(script),
            10 => self.ends[side].session.set_receiving(now, script.below(2) == 0),
            _ => self.change(side, script),
        }
        self.drain();
    }

    fn change(&mut self, side: usize, script: &mut Script<'_>) {
        let (now, session) = (self.now, &mut self.ends[side].session);
        match script.below(6) {
            0 => session.finish(now),
            1 => session.set_mode(now, Mode::PartiallyReliable),
            2 => session.set_mode(now, Mode::TotallyReliable),
            // Refused if it is out of range.
            3 => _ = session.set_tpdu_size(now, script.half()),
            4 => session.set_rate(now, BitRate::new(u64::from(script.half()) * 4_096 + 16_000)),
            _ => {
                self.is_closed = true;
                session.close(now);
            }
        }
    }

    fn wait(&mut self, micros: u64) {
        self.now = self.now + Nanos::from_micros(micros);
        self.ends.iter_mut().for_each(|end| end.session.on_timer(self.now));
    }

    fn send(&mut self, side: usize, script: &mut Script<'_>) {
        let (kind, size) = (FrameKind::ALL[script.below(FrameKind::ALL.len())], usize::from(script.half()));
        let (end, deadline) = (&mut self.ends[side], Some(Nanos::from_millis(u64::from(script.byte()) + 1)));
        let number = end.sizes.len() as u64;
        let data: Vec<u8> = (0..size).map(|at| byte(number, at)).collect();
        // A refusal is a normal answer.
        if let Ok(accepted) = end.session.send(self.now, Outgoing { kind, deadline, data: &data }) {
            assert_eq!(accepted.get(), number);
            end.sizes.push(size);
        }
    }

    /// The datagram at a place, which is any of those in the network.
    fn take(&mut self, at: usize) -> Option<(usize, Vec<u8>)> {
        let at = at.checked_rem(self.flying.len())?;
        Some(self.flying.remove(at))
    }

    fn pass(&mut self, at: usize) {
        if let Some((to, datagram)) = self.take(at) {
            self.ends[to].session.on_datagram(self.now, CarrierId(0), &datagram);
        }
    }

    fn repeat(&mut self, at: usize) {
        let copy = at.checked_rem(self.flying.len()).map(|at| self.flying[at].clone());
        self.flying.extend(copy.filter(|_| self.flying.len() < MOST_FLYING));
    }

    fn alter(&mut self, script: &mut Script<'_>) {
        let (at, place, value) = (script.below(MOST_FLYING), usize::from(script.byte()), script.byte());
        let Some(at) = at.checked_rem(self.flying.len()).filter(|_| self.may_alter) else { return };
        let datagram = &mut self.flying[at].1;
        if let Some(byte) = datagram.get_mut(place) {
            *byte ^= value;
            self.is_altered |= value != 0;
        }
    }

    fn drain(&mut self) {
        for side in 0..2 {
            while let Some(output) = self.ends[side].session.poll() {
                self.carry_out(side, output);
            }
        }
    }

    fn carry_out(&mut self, side: usize, output: Output) {
        match output {
            Output::Datagram { .. } => {
                let datagram = self.ends[side].session.datagram().to_vec();
                assert!(datagram.len() <= 1_400);
                if self.flying.len() < MOST_FLYING {
                    self.flying.push((1 - side, datagram));
                }
            }
            Output::Received(received) => {
                let [one, other] = &mut self.ends;
                let (own, peer) = if side == 0 { (one, other) } else { (other, one) };
                own.deliver(received, &peer.sizes, self.is_altered);
            }
            Output::Outcome { number, .. } => {
                let (end, number) = (&mut self.ends[side], number.get());
                assert!(number < end.sizes.len() as u64, "an outcome of a message that was not sent");
                assert!(end.outcomes.insert(number), "message {number} has two outcomes");
            }
            Output::Ended(reason) => {
                let before = self.ends[side].ended.replace(reason);
                assert_eq!(before, None, "a session ends twice");
            }
            Output::Skipped { .. } | Output::ModeChanged { .. } | Output::PeerFinished => {}
        }
    }

    /// As in the target `metp`.
    fn check(&self) {
        let limit = 3 * MEMORY.get() + LARGEST + MEMORY.get() / 64;
        for end in &self.ends {
            assert!(end.session.memory().get() <= limit, "{} of {limit} bytes", end.session.memory().get());
            assert!(end.session.next_wakeup().is_none_or(|at| at > self.now));
        }
    }

    /// The network delivers everything, unless it altered something: then it is silent, and the sessions end by that.
    fn end(&mut self) {
        let is_whole = !self.is_altered && !self.is_closed && self.ends.iter().all(|end| end.ended.is_none());
        for end in &mut self.ends {
            end.session.set_rate(self.now, BitRate::new(50_000_000));
            end.session.set_receiving(self.now, true);
            end.session.finish(self.now);
        }
        self.drain();
        let mut steps = 0;
        while self.ends.iter().any(|end| end.ended.is_none()) {
            steps += 1;
            assert!(steps <= MOST_STEPS, "the sessions do not end");
            if is_whole && !self.flying.is_empty() {
                self.pass(0);
            } else {
                self.flying.clear();
                self.pass_time();
            }
            self.drain();
        }
        for end in &self.ends {
            assert_eq!(end.outcomes.len(), end.sizes.len(), "a message has no outcome");
            assert!(!is_whole || end.ended == Some(EndReason::Finished), "{:?}", end.ended);
        }
    }

    fn pass_time(&mut self) {
        let open = self.ends.iter().filter(|end| end.ended.is_none());
        let at = open.filter_map(|end| end.session.next_wakeup()).min().expect("a session that has not ended waits");
        self.now = self.now.max(at);
        self.ends.iter_mut().for_each(|end| end.session.on_timer(self.now));
    }
}
