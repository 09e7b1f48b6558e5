//! Two sessions over a simulated link.

use qfabric_metp::testing::{LinkSettings, Loss, Pair, Side};
use qfabric_metp::{Config, EndReason, FrameKind, Mode, Outcome, Outgoing};
use qfabric_types::{BitRate, Nanos};

fn config(mode: Mode) -> Config {
    Config { mode, rate: BitRate::new(28_000_000), ..Config::default() }
}

fn data(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn send(pair: &mut Pair, kind: FrameKind, deadline_ms: Option<u64>, bytes: &[u8]) {
    let deadline = deadline_ms.map(Nanos::from_millis);
    pair.with(Side::A, |session, now| session.send(now, Outgoing { kind, deadline, data: bytes })).expect("accepted");
}

#[test]
fn messages_arrive_complete_and_in_order_over_a_perfect_link() {
    let (a, b) = (config(Mode::TotallyReliable), config(Mode::TotallyReliable));
    let mut pair = Pair::over(a, b, LinkSettings::default(), 1);
    let sizes = [1, 7, 8, 9, 1_390, 1_391, 20_000, 286_000, 3];
    for (index, size) in sizes.iter().enumerate() {
        send(&mut pair, FrameKind::Other, None, &data(*size, index as u8));
    }
    pair.run_for(Nanos::from_millis(500));
    let arrivals = &pair.end(Side::B).arrivals;
    assert_eq!(arrivals.len(), sizes.len());
    for (index, arrival) in arrivals.iter().enumerate() {
        assert_eq!(arrival.received.number.get(), index as u64);
        assert!(arrival.data == data(sizes[index], index as u8) && arrival.holes.is_empty());
    }
    let statistics = pair.end(Side::A).session.statistics();
    assert_eq!((statistics.delivered, statistics.retransmissions), (sizes.len() as u64, 0));
    assert!(pair.end(Side::A).outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Delivered));
}

#[test]
fn more_messages_than_a_report_has_bits_are_delivered_at_once() {
    for mode in [Mode::TotallyReliable, Mode::PartiallyReliable] {
        let link = LinkSettings { rate: BitRate::new(1_000_000_000), ..LinkSettings::default() };
        let mut pair = Pair::over(config(mode), config(mode), link, 1);
        (0..64).for_each(|seed| send(&mut pair, FrameKind::Other, None, &data(10, seed)));
        pair.run_for(Nanos::from_millis(500));
        let outcomes = &pair.end(Side::A).outcomes;
        assert_eq!(outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Delivered).count(), 64, "{mode:?}");
    }
}

#[test]
fn messages_arrive_over_a_lossy_link_and_both_sides_end() {
    let (a, b) = (config(Mode::TotallyReliable), config(Mode::TotallyReliable));
    let link = LinkSettings { loss: Loss::Bernoulli(0.2), ..LinkSettings::default() };
    let mut pair = Pair::over(a, b, link, 7);
    for index in 0..50 {
        send(&mut pair, FrameKind::Other, None, &data(100 + 900 * index, index as u8));
        pair.run_for(Nanos::from_millis(20));
    }
    pair.with(Side::A, |session, now| session.finish(now));
    pair.with(Side::B, |session, now| session.finish(now));
    pair.run_for(Nanos::from_millis(5_000));
    let arrivals = &pair.end(Side::B).arrivals;
    assert_eq!(arrivals.len(), 50, "{:?}", pair.end(Side::A).session.statistics());
    assert!(arrivals.iter().enumerate().all(|(index, one)| one.data == data(100 + 900 * index, index as u8)));
    assert_eq!(pair.end(Side::A).ended, Some(EndReason::Finished));
    assert_eq!(pair.end(Side::B).ended, Some(EndReason::Finished));
}
