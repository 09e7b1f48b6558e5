//! Bursts of the room `energy` on the kernel's `fq`: the card would wake up as often as in the simulator. Needs root and a
//! kernel with `fq` and veth; elsewhere the test prints that it is skipped.

mod net_bursts;
mod net_common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use net_bursts::{BYTES, FRAME, MS, PERIOD, Planned, TIME, send, sources};
use qfabric_energy::Model;
use qfabric_linux::clock;
use qfabric_linux::net::TimedSocket;
use qfabric_linux::net::testing::{Frames, Interface};
use qfabric_sim::energy::{CardRule, Techniques, run};
use qfabric_types::{Instant, Nanos};

/// A longer gap between two packets ends a burst: the card dozes. A packet takes 6 ms on the simulated radio.
const GAP: u64 = 20 * MS;

/// Wake-ups of the card in the simulator.
fn simulated(shapes: bool) -> f64 {
    let model = Model::shipped("ipaq-h3870-orinoco").unwrap();
    let techniques = Techniques { card: CardRule::Doze(0), shapes, ..Techniques::NONE };
    let usage = run(&model, &sources(), techniques, TIME).unwrap();
    assert_eq!(usage.late, 0);
    usage.wakeups
}

/// The far end looks for frames once a millisecond.
const LOOK: u64 = 2 * MS;

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
