//! The packets of three streams and their bursts, handed to a real network: Figure 53 of the thesis (000 §6.3.1).
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::time::Duration;

use qfabric_energy::{Departures, Packet};
use qfabric_linux::clock;
use qfabric_linux::net::TimedSocket;
use qfabric_sim::energy::Source;
use qfabric_types::{Instant, Nanos, Window};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const PERIOD: u64 = 200 * MS;
pub(crate) const TIME: u64 = 10_000 * MS;
/// Bytes of a packet, and of the same packet on the simulated radio: one frame here, four there.
pub(crate) const FRAME: usize = 1_000;
pub(crate) const BYTES: u64 = 5_000;

/// Three streams, a third of the period apart (000 Figure 53), as in `qfabric sim energy --scenario fig53`.
pub(crate) fn sources() -> [Source; 3] {
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

/// What the twin planned for a packet, ns from the begin: when it leaves, and when it must have left at the latest.
pub(crate) struct Planned {
    pub(crate) departure: u64,
    pub(crate) deadline: u64,
}

/// Hands each packet to the kernel at its ready time, with its number in front. Returns what was planned for each.
pub(crate) fn send(socket: &TimedSocket, transmission: u64, shapes: bool, begin: Instant) -> Vec<Planned> {
    let mut departures = Departures::new(&sources().map(|source| source.window), 64);
    let mut planned = Vec::new();
    for (id, (stream, ready, deadline)) in packets().into_iter().enumerate() {
        let at = begin + Nanos::new(ready);
        std::thread::sleep(Duration::from_nanos(at.signed_since(clock::now()).max(0) as u64));
        let (id, stream) = (id as u64, Some(stream));
        let packet = Packet { id, stream, bytes: BYTES, ready, deadline, transmission, urgent: false };
        let departure = if shapes { departures.plan(packet).unwrap() } else { ready };
        let mut frame = [7; FRAME];
        frame[..8].copy_from_slice(&id.to_le_bytes());
        socket.send_at(&frame, begin + Nanos::new(departure)).unwrap();
        planned.push(Planned { departure, deadline });
    }
    planned
}
