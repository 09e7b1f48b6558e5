//! On the steady path, neither a message nor one of its TPDUs allocates memory, on both sides, with loss.

use qfabric_metp::{CarrierId, CarrierInfo, CarrierRoles, Config, FrameKind, Mode, Outgoing, Output, Session};
use qfabric_types::{BitRate, Bytes, Instant, Nanos};

/// Two sessions whose datagrams arrive after 1 ms; every 40th one is lost.
struct Line {
    sessions: [Session; 2],
    now: Instant,
    /// Datagrams on their way to each side, with their number.
    flying: [Vec<([u8; 1_500], usize)>; 2],
    sent: u64,
    received: u64,
}

impl Line {
    fn new() -> Line {
        let config = Config {
            mode: Mode::PartiallyReliable,
            rate: BitRate::new(200_000_000),
            bucket: Bytes::new(100_000),
            ..Config::default()
        };
        let info = CarrierInfo { max_datagram: 1_414, overhead: 66, min_rtt: None, roles: CarrierRoles::Both };
        let session = || {
            let mut session = Session::new(config.clone(), Instant::ZERO).expect("a valid configuration");
            session.attach(Instant::ZERO, CarrierId(0), info).expect("the first carrier");
            session
        };
        let flying = [Vec::with_capacity(256), Vec::with_capacity(256)];
        Line { sessions: [session(), session()], now: Instant::ZERO, flying, sent: 0, received: 0 }
    }

    fn send(&mut self, bytes: usize) {
        let data = [5; 100_000];
        let deadline = Some(Nanos::from_millis(150));
        let outgoing = Outgoing { kind: FrameKind::P, deadline, data: &data[..bytes] };
        self.sessions[0].send(self.now, outgoing).expect("accepted");
    }

    fn millisecond(&mut self) {
        self.now = self.now + Nanos::from_millis(1);
        for side in [0, 1] {
            while let Some((bytes, length)) = self.flying[side].pop() {
                self.sessions[side].on_datagram(self.now, CarrierId(0), &bytes[..length]);
                self.drain(side);
            }
            self.sessions[side].on_timer(self.now);
            self.drain(side);
        }
        // The last datagram is popped first: keep their order.
        self.flying.iter_mut().for_each(|flying| flying.reverse());
    }

    fn drain(&mut self, side: usize) {
        while let Some(output) = self.sessions[side].poll() {
            match output {
                Output::Datagram { .. } => {
                    self.sent += 1;
                    let (bytes, mut copy) = (self.sessions[side].datagram(), [0; 1_500]);
                    copy[..bytes.len()].copy_from_slice(bytes);
                    if !self.sent.is_multiple_of(40) {
                        self.flying[1 - side].push((copy, bytes.len()));
                    }
                }
                Output::Received(received) => {
                    assert!(self.sessions[side].message().iter().all(|byte| *byte == 5) && received.is_complete());
                    self.received += 1;
                }
                _ => {}
            }
        }
    }

    /// 40 messages, one each 10 ms.
    fn round(&mut self) {
        for index in 0..40 {
            self.send(1 + index * 2_400);
            (0..10).for_each(|_| self.millisecond());
        }
        (0..200).for_each(|_| self.millisecond());
    }
}

#[test]
fn a_message_on_its_way_takes_no_memory() {
    let mut line = Line::new();
    (0..3).for_each(|_| line.round());
    let before = line.received;
    let allocations = allocation_counter::measure(|| line.round()).count_total;
    assert_eq!((line.received - before, allocations), (40, 0), "{:?}", line.sessions[0].statistics());
    assert!(line.sessions[0].statistics().retransmissions > 50);
}
