//! Bursts of the room `energy` on the kernel's `fq`: the card would wake up as often as in the simulator. Needs root and a
//! kernel with `fq` and veth; elsewhere the test prints that it is skipped.

mod net_common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use qfabric_energy::{Model, Packet, Shaper};
use qfabric_linux::clock;
use qfabric_linux::net::TimedSocket;
use qfabric_linux::net::testing::{Frames, Interface};
use qfabric_sim::energy::{CardRule, Source, Techniques, run};
use qfabric_types::{Instant, Nanos, Window};

const MS: u64 = 1_000_000;
const PERIOD: u64 = 200 * MS;
const TIME: u64 = 10_000 * MS;
/// Bytes of a packet, and of the same packet on the simulated radio: one frame here, four there.
const FRAME: usize = 1_000;
const BYTES: u64 = 5_000;
/// A longer gap between two packets ends a burst: the card dozes. A packet takes 6 ms on the simulated radio.
const GAP: u64 = 20 * MS;

/// Three streams, a third of the period apart (000 Figure 53), as in `qfabric sim energy --scenario fig53`.
fn sources() -> [Source; 3] {
    [0, 1, 2].map(|third| Source {
        period: PERIOD,
        arrival: third * PERIOD / 3 + 3 * MS,
        work: MS,
        bytes: BYTES,
        window: Window::new(1, 10).unwrap(),
        slack: 0,
        network: 100,
    })
}

/// Wake-ups of the card in the simulator.
fn simulated(shapes: bool) -> f64 {
    let model = Model::shipped("ipaq-h3870-orinoco").unwrap();
    let techniques = Techniques { card: CardRule::Doze(0), shapes, ..Techniques::NONE };
    let usage = run(&model, &sources(), techniques, TIME).unwrap();
    assert_eq!(usage.late, 0);
    usage.wakeups
}

/// Ready time and deadline of every packet, ns from the begin, by ready time.
fn packets() -> Vec<(usize, u64, u64)> {
    let of = |(stream, source): (usize, &Source)| {
        let source = source.clone();
        (0..)
            .map(move |job| source.arrival + job * source.period)
            .take_while(|release| *release < TIME - PERIOD)
            .map(move |release| (stream, release + source.work, release + source.period))
    };
    let mut all: Vec<_> = sources().iter().enumerate().flat_map(of).collect();
    all.sort_by_key(|(_, ready, _)| *ready);
    all
}

/// The shaper of a card that is busy for `transmission` with each packet.
struct Card {
    shaper: Shaper,
    transmission: u64,
    free_at: u64,
}

impl Card {
    /// Lets the card send what is due by `until`.
    fn advance(&mut self, until: u64) {
        while let Some(wakeup) = self.shaper.next_wakeup() {
            let now = wakeup.max(self.free_at);
            if now > until {
                return;
            }
            if self.shaper.next(now).is_some() {
                self.free_at = now + self.transmission;
            }
        }
    }

    /// A packet is ready; returns the time at which it leaves, as far as is known now: the begin of its burst, or the end
    /// of the packet that is being sent.
    fn departure(&mut self, packet: Packet) -> u64 {
        self.advance(packet.ready);
        self.shaper.arrive(packet, packet.ready).unwrap();
        self.shaper.next_wakeup().unwrap().max(self.free_at)
    }
}

/// The far end looks for frames once a millisecond.
const LOOK: u64 = 2 * MS;

/// What the twin planned for a packet, ns from the begin: when it leaves, and when it must have left at the latest.
struct Planned {
    departure: u64,
    deadline: u64,
}

/// Hands each packet to the kernel at its ready time, with its number in front. Returns what was planned for each.
fn send(socket: &TimedSocket, transmission: u64, shapes: bool, begin: Instant) -> Vec<Planned> {
    let shaper = Shaper::new(&sources().map(|source| source.window), 64);
    let (mut card, mut planned) = (Card { shaper, transmission, free_at: 0 }, Vec::new());
    for (id, (stream, ready, deadline)) in packets().into_iter().enumerate() {
        let at = begin + Nanos::new(ready);
        std::thread::sleep(Duration::from_nanos(at.signed_since(clock::now()).max(0) as u64));
        let (id, stream) = (id as u64, Some(stream));
        let packet = Packet { id, stream, bytes: BYTES, ready, deadline, transmission, urgent: false };
        let departure = if shapes { card.departure(packet) } else { ready };
        let mut frame = [7; FRAME];
        frame[..8].copy_from_slice(&id.to_le_bytes());
        socket.send_at(&frame, begin + Nanos::new(departure)).unwrap();
        planned.push(Planned { departure, deadline });
    }
    planned
}

/// Numbers of packets and the times at which they arrive at the far end, ns from the begin.
fn arrivals(far: &Frames, begin: Instant, until: Instant) -> Vec<(usize, u64)> {
    let (mut buffer, mut times) = ([0; 2_048], Vec::new());
    while clock::now() < until {
        while let Ok(length) = far.receive(&mut buffer) {
            if length > FRAME {
                let number = u64::from_le_bytes(*buffer[length - FRAME..].first_chunk().unwrap());
                times.push((number as usize, clock::now().since(begin).get()));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    times
}

/// Every packet arrived once, when the twin let it leave, and no twin let it leave after its deadline.
fn check_each(planned: &[Planned], arrived: &[(usize, u64)], name: &str) {
    let mut numbers: Vec<usize> = arrived.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..planned.len()), "{name}: {} of {} packets", numbers.len(), planned.len());
    for (number, at) in arrived {
        let &Planned { departure, deadline } = &planned[*number];
        assert!(departure <= deadline, "{name}: packet {number} is planned for {departure}, after {deadline}");
        let times = departure..departure + LOOK;
        assert!(times.contains(at), "{name}: packet {number} at {at}, not in {times:?}");
    }
}

/// Number of wake-ups: gaps longer than [`GAP`], and the first packet.
fn on_fq(name: &str, shapes: bool) -> usize {
    let (near_name, far_name) = (format!("n{name}"), format!("f{name}"));
    let near = Interface::veth(&near_name, &far_name).unwrap();
    near.address(Ipv4Addr::new(10, 77, 0, 1)).unwrap();
    near.set_root(0x10_0000, "fq", None).unwrap();
    let far = Frames::at(qfabric_linux::net::index(&far_name).unwrap(), 0).unwrap();
    let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
    socket.set_broadcast(true).unwrap();
    socket.connect("10.77.0.255:6000").unwrap();
    let (socket, model) = (TimedSocket::new(socket).unwrap(), Model::shipped("ipaq-h3870-orinoco").unwrap());
    let time = model.radio.cpu_ns(BYTES) + model.radio.air_ns(BYTES);
    let begin = clock::now() + Nanos::from_millis(100);
    let (planned, arrived) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&socket, time, shapes, begin));
        let arrived = arrivals(&far, begin, begin + Nanos::new(TIME + PERIOD));
        (sender.join().unwrap(), arrived)
    });
    check_each(&planned, &arrived, name);
    1 + arrived.windows(2).filter(|pair| pair[1].1 - pair[0].1 > GAP).count()
}

#[test]
fn fq_with_departure_times_wakes_the_card_as_often_as_the_simulator() {
    let Some(_live) = net_common::root() else { return };
    if !has_fq() {
        return qfabric_linux::testing::skip(
            "this kernel has no veth or no fq; it does in the test machine: make vm-test",
        );
    }
    let [spread, bursts] = [("spread", false), ("bursts", true)].map(|(name, shapes)| {
        let (expected, wakeups) = (simulated(shapes), on_fq(name, shapes));
        println!("{name}: {wakeups} wake-ups, simulator {expected}");
        (wakeups as f64, expected)
    });
    for (wakeups, expected) in [spread, bursts] {
        assert!((wakeups / expected - 1.0).abs() <= 0.1, "{wakeups} wake-ups, simulator {expected}");
    }
    assert!(spread.0 >= 2.5 * bursts.0, "Figure 53: {spread:?}, {bursts:?}");
}

fn has_fq() -> bool {
    let Ok(probe) = Interface::dummy("fqprobe") else { return false };
    probe.set_root(0x20_0000, "fq", None).is_ok()
}
