//! Datagrams of METP from a hostile peer.

use qfabric_metp::{
    CarrierId, CarrierInfo, CarrierRoles, Config, DeliveryOrder, FrameKind, Mode, Outgoing, Output, Session,
};
use qfabric_types::{BitRate, Bytes, Instant, Nanos};

use crate::Script;

const BEGIN: Instant = Instant::new(1_000_000_000_000);
const TAG: u16 = 0x7171;
const MEMORY: Bytes = Bytes::new(64 * 1024);
/// The bucket holds 20 kB, a datagram has at least 3 bytes, and the lists have 32 places.
const MAX_OUTPUTS: u32 = 8_000;

/// A session whose peer sends arbitrary datagrams: it comes to rest after each one, its memory stays within the
/// admitted amounts, and it ends when the peer is silent.
pub fn metp(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut peer = PeerUnderTest::new(script.byte());
    while !script.is_over() {
        peer.step(&mut script);
        peer.check();
    }
    peer.end();
}

struct PeerUnderTest {
    session: Session,
    now: Instant,
    has_ended: bool,
}

impl PeerUnderTest {
    fn new(options: u8) -> PeerUnderTest {
        let flag = |bit: u8| options & 1 << bit != 0;
        let config = Config {
            tag: TAG,
            largest_message: Bytes::new(40_000),
            messages_in_flight: 32,
            send_memory: MEMORY,
            receive_memory: MEMORY,
            rate: BitRate::new(50_000_000),
            bucket: Bytes::new(20_000),
            mode: if flag(0) { Mode::PartiallyReliable } else { Mode::TotallyReliable },
            order: if flag(1) { DeliveryOrder::WhenComplete } else { DeliveryOrder::InOrder },
            receive_time: flag(2).then_some(Nanos::from_millis(50)),
            ..Config::default()
        };
        let mut session = Session::new(config, BEGIN).expect("a valid configuration");
        let info = CarrierInfo { max_datagram: 1_400, overhead: 60, min_rtt: None, roles: CarrierRoles::Both };
        session.attach(BEGIN, CarrierId(0), info).expect("the first carrier");
        PeerUnderTest { session, now: BEGIN, has_ended: false }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.below(8) {
            0 => self.wait(u64::from(script.half())),
            1 => self.send(script),
            2 => self.session.set_receiving(self.now, script.below(2) == 0),
            3 => self.arrive(script.piece()),
            4 => self.change(script),
            // A datagram with a valid beginning, so that most inputs reach the fields.
            kind => {
                let first = 1 << 6 | [1, 2, 3][kind - 5] << 3 | script.byte() & 7;
                let datagram = [&[first][..], &TAG.to_be_bytes(), script.piece()].concat();
                self.arrive(&datagram);
            }
        }
        self.drain();
    }

    /// A call of the application or of the carrier; refusals are normal answers.
    fn change(&mut self, script: &mut Script<'_>) {
        let (now, id) = (self.now, CarrierId(script.below(3) as u32));
        let (half, session) = (script.half(), &mut self.session);
        match script.below(9) {
            0 => session.finish(now),
            1 => session.set_mode(now, if half & 1 == 0 { Mode::TotallyReliable } else { Mode::PartiallyReliable }),
            2 => session.set_rate(now, BitRate::new(u64::from(half) * 1_024)),
            3 => _ = session.set_tpdu_size(now, half),
            4 => {
                let roles = [CarrierRoles::Both, CarrierRoles::Send, CarrierRoles::Receive][usize::from(half) % 3];
                let info = CarrierInfo { max_datagram: 256 + half % 1_145, overhead: 60, min_rtt: None, roles };
                _ = session.attach(now, id, info);
            }
            5 => _ = session.detach(now, id),
            6 => _ = session.select(now, id, CarrierId(u32::from(half) % 3)),
            7 => _ = session.carrier_changed(now, id, half % 1_401, None),
            _ => _ = session.set_writable(now, id, half & 1 == 0),
        }
    }

    fn wait(&mut self, micros: u64) {
        self.now = self.now + Nanos::from_micros(micros * 8);
        self.session.on_timer(self.now);
    }

    fn send(&mut self, script: &mut Script<'_>) {
        let kind = FrameKind::ALL[script.below(FrameKind::ALL.len())];
        let deadline = Some(Nanos::from_millis(u64::from(script.byte())));
        let data = vec![1; usize::from(script.half())];
        // A refusal is a normal answer.
        let _ = self.session.send(self.now, Outgoing { kind, deadline, data: &data });
    }

    fn arrive(&mut self, datagram: &[u8]) {
        self.session.on_datagram(self.now, CarrierId(0), datagram);
    }

    fn drain(&mut self) {
        let mut outputs = 0;
        while let Some(output) = self.session.poll() {
            outputs += 1;
            assert!(outputs <= MAX_OUTPUTS, "{outputs} outputs of one input");
            match output {
                Output::Datagram { .. } => assert!(self.session.datagram().len() <= 1_400),
                Output::Received(received) => {
                    assert_eq!(self.session.message().len() as u64, received.size.get());
                    let missing: usize = self.session.holes().map(|hole| hole.len()).sum();
                    assert_eq!(missing as u64, received.size.get() - received.arrived.get());
                }
                Output::Ended(_) => self.has_ended = true,
                _ => {}
            }
        }
    }

    /// Twice the memory for sending (queued messages, and buffers for the next ones), the ring with its spill, and
    /// one bit for eight bytes.
    fn check(&self) {
        let limit = 2 * MEMORY.get() + MEMORY.get() + 40_000 + MEMORY.get() / 64;
        assert!(self.session.memory().get() <= limit, "{} of {limit} bytes", self.session.memory().get());
        assert!(self.session.next_wakeup().is_none_or(|at| at > self.now));
    }

    /// Without a datagram of the peer, the session ends after the idle limit. Until then it wakes up a bounded number
    /// of times: retransmissions are at least 2 ms apart at first, then up to one second.
    fn end(&mut self) {
        let mut wakeups = 0;
        while let Some(at) = self.session.next_wakeup().filter(|_| !self.has_ended) {
            self.now = at;
            self.session.on_timer(at);
            self.drain();
            wakeups += 1;
            assert!(wakeups <= 100_000, "the session does not end");
        }
        assert!(self.has_ended, "the session neither ended nor waits for a time");
    }
}
