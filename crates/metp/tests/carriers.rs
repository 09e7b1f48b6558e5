//! Carriers that come, go and change under a running session.

use qfabric_metp::testing::{LinkSettings, Pair, Side};
use qfabric_metp::{CarrierId, CarrierRefusal, Config, EndReason, FrameKind, Mode, Outcome, Outgoing};
use qfabric_types::{BitRate, Instant, Nanos};

const PERIOD: Nanos = Nanos::from_millis(40);
const DEADLINE: Nanos = Nanos::from_millis(150);

fn config(mode: Mode) -> Config {
    Config { mode, rate: BitRate::new(20_000_000), idle_limit: Nanos::from_millis(2_000), ..Config::default() }
}

fn pair(mode: Mode) -> Pair {
    Pair::over(config(mode), config(mode), LinkSettings::default(), 1)
}

fn send(pair: &mut Pair, bytes: usize) {
    let outgoing = Outgoing { kind: FrameKind::P, deadline: Some(DEADLINE), data: &vec![9; bytes] };
    pair.with(Side::A, |session, now| session.send(now, outgoing)).expect("accepted");
}

/// A new path takes over, and the old one disappears together with its datagrams.
fn replace(pair: &mut Pair, old: CarrierId, new: CarrierId) {
    pair.connect(new, [LinkSettings::default(); 2], 2, 1_414);
    for side in [Side::A, Side::B] {
        pair.with(side, |session, now| session.select(now, new, new)).expect("both are attached");
    }
    pair.disconnect(old);
}

/// Frames of 20 kB at 25 fps; the carrier is replaced `offset` after the tenth frame. Returns the times of arrival.
fn run(mode: Mode, offset: Nanos) -> (Pair, Vec<Instant>) {
    let mut pair = pair(mode);
    pair.run_for(Nanos::from_millis(100));
    for frame in 0..20 {
        let begin = pair.now;
        send(&mut pair, 20_000);
        if frame == 10 {
            pair.run_until(begin + offset);
            replace(&mut pair, CarrierId(0), CarrierId(1));
        }
        pair.run_until(begin + PERIOD);
    }
    pair.run_for(Nanos::from_millis(400));
    let complete = pair.end(Side::B).arrivals.iter().filter(|arrival| arrival.received.is_complete());
    let times = complete.map(|arrival| arrival.at).collect();
    (pair, times)
}

#[test]
fn a_carrier_replaced_at_any_instant_loses_no_frame_and_leaves_a_gap_of_one_frame_time() {
    for mode in [Mode::TotallyReliable, Mode::PartiallyReliable] {
        for ms in 0..40 {
            let (pair, times) = run(mode, Nanos::from_millis(ms));
            assert_eq!(times.len(), 20, "{mode:?}, {ms} ms");
            let gap = times.windows(2).map(|pair| pair[1].since(pair[0])).max().expect("20 frames");
            assert!(gap <= PERIOD + PERIOD, "{mode:?}, {ms} ms: {gap}");
            assert_eq!(pair.end(Side::B).session.statistics().in_time, 20);
        }
    }
}

#[test]
fn data_and_acknowledgments_may_take_different_carriers() {
    let mut pair = pair(Mode::TotallyReliable);
    pair.keeps_sent = true;
    pair.connect(CarrierId(1), [LinkSettings::default(); 2], 3, 1_000);
    pair.run_for(Nanos::from_millis(100));
    pair.with(Side::A, |session, now| session.select(now, CarrierId(0), CarrierId(1))).expect("attached");
    pair.with(Side::B, |session, now| session.select(now, CarrierId(0), CarrierId(1))).expect("attached");
    let before = [Side::A, Side::B].map(|side| pair.end(side).sent.len());
    send(&mut pair, 50_000);
    pair.run_for(Nanos::from_millis(200));
    assert_eq!(pair.end(Side::B).arrivals.len(), 1);
    let mut data = pair.end(Side::A).sent[before[0]..].iter().filter(|(_, _, bytes)| bytes.len() > 100);
    assert!(data.all(|(_, carrier, _)| *carrier == CarrierId(0)));
    let reports = &pair.end(Side::B).sent[before[1]..];
    assert!(reports.len() > 3 && reports.iter().all(|(_, carrier, _)| *carrier == CarrierId(1)));
}

#[test]
fn a_path_mtu_that_shrinks_costs_no_frame() {
    let mut pair = pair(Mode::TotallyReliable);
    pair.run_for(Nanos::from_millis(100));
    for index in 0..10 {
        send(&mut pair, 30_000);
        if index == 5 {
            pair.link(CarrierId(0), Side::A).settings.mtu = 700;
        }
        pair.run_for(PERIOD);
    }
    assert!(pair.end(Side::B).arrivals.len() < 10, "large datagrams disappear");
    pair.with(Side::A, |session, now| session.carrier_changed(now, CarrierId(0), 700, None)).expect("attached");
    pair.run_for(Nanos::from_millis(1_000));
    assert_eq!(pair.end(Side::B).arrivals.len(), 10);
    assert!(pair.end(Side::A).outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Delivered));
}

#[test]
fn a_larger_datagram_is_used_after_the_peer_agreed_and_a_smaller_one_at_once() {
    let mut pair = pair(Mode::TotallyReliable);
    pair.keeps_sent = true;
    pair.connect(CarrierId(1), [LinkSettings::default(); 2], 3, 9_000);
    pair.disconnect(CarrierId(0));
    pair.run_for(Nanos::from_millis(100));
    for (size, delay, largest) in [(8_000, 0, 1_400..=1_414), (8_000, 100, 7_900..=8_000), (600, 0, 590..=600)] {
        pair.with(Side::A, |session, now| session.set_tpdu_size(now, size)).expect("a valid size");
        pair.run_for(Nanos::from_millis(delay));
        let before = pair.end(Side::A).sent.len();
        send(&mut pair, 20_000);
        pair.run_for(Nanos::from_millis(15));
        let longest = pair.end(Side::A).sent[before..].iter().map(|(_, _, bytes)| bytes.len()).max();
        assert!(longest.is_some_and(|longest| largest.contains(&longest)), "{size}: {longest:?}");
        pair.run_for(Nanos::from_millis(100));
    }
    assert_eq!(pair.end(Side::B).arrivals.len(), 3);
}

#[test]
fn a_host_that_comes_back_in_time_continues_and_one_that_stays_away_ends_the_session() {
    for (away, delivered, ended) in [(1_500, 2, None), (3_000, 1, Some(EndReason::PeerSilent))] {
        let mut pair = pair(Mode::TotallyReliable);
        send(&mut pair, 20_000);
        pair.run_for(Nanos::from_millis(200));
        pair.disconnect(CarrierId(0));
        send(&mut pair, 20_000);
        pair.run_for(Nanos::from_millis(away));
        pair.connect(CarrierId(1), [LinkSettings::default(); 2], 3, 1_414);
        pair.run_for(Nanos::from_millis(500));
        assert_eq!((pair.end(Side::B).arrivals.len(), pair.end(Side::A).ended), (delivered, ended), "{away} ms");
        assert_eq!(pair.end(Side::A).outcomes.len(), 2);
    }
}

#[test]
fn a_carrier_that_takes_nothing_makes_messages_wait_where_deadlines_apply() {
    let mut pair = pair(Mode::PartiallyReliable);
    pair.run_for(Nanos::from_millis(100));
    pair.with(Side::A, |session, now| session.set_writable(now, CarrierId(0), false)).expect("attached");
    send(&mut pair, 20_000);
    pair.run_for(Nanos::from_millis(200));
    assert_eq!(pair.end(Side::A).outcomes.iter().map(|(_, outcome)| *outcome).collect::<Vec<_>>(), [Outcome::Expired]);
    pair.with(Side::A, |session, now| session.set_writable(now, CarrierId(0), true)).expect("attached");
    send(&mut pair, 20_000);
    pair.run_for(Nanos::from_millis(200));
    assert_eq!(pair.end(Side::B).arrivals.len(), 1);
}

#[test]
fn carriers_are_bounded_and_refusals_name_them() {
    let mut pair = pair(Mode::PartiallyReliable);
    let refused = pair.with(Side::A, |session, now| session.detach(now, CarrierId(7)));
    assert_eq!(refused, Err(CarrierRefusal::NotAttached(CarrierId(7))));
    assert_eq!(refused.unwrap_err().problem().to_string(), "carrier 7 is not attached; attach the carrier first");
    (1..16).for_each(|id| pair.connect(CarrierId(id), [LinkSettings::default(); 2], 1, 1_414));
    let info = qfabric_metp::CarrierInfo {
        max_datagram: 1_414,
        overhead: 0,
        min_rtt: None,
        roles: qfabric_metp::CarrierRoles::Both,
    };
    let refused = pair.with(Side::A, |session, now| session.attach(now, CarrierId(16), info));
    assert_eq!(refused, Err(CarrierRefusal::TooMany { limit: 16 }));
}
