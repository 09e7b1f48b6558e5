//! Modes, deadlines, limits and ends of sessions.

use qfabric_metp::testing::{LinkSettings, Loss, Pair, Side};
use qfabric_metp::{
    Config, DeliveryOrder, DropReason, EndReason, FrameKind, InvalidConfig, MessageNumber, Mode, Outcome, Outgoing,
    SendRefusal,
};
use qfabric_types::{BitRate, Bytes, Nanos};

fn config(mode: Mode) -> Config {
    Config { mode, rate: BitRate::new(20_000_000), ..Config::default() }
}

fn pair(mode: Mode, loss: Loss) -> Pair {
    let link = LinkSettings { loss, ..LinkSettings::default() };
    let mut pair = Pair::over(config(mode), config(mode), link, 5);
    pair.run_for(Nanos::from_millis(200));
    pair
}

fn send(pair: &mut Pair, kind: FrameKind, deadline_ms: u64, bytes: usize) -> Result<MessageNumber, SendRefusal> {
    let outgoing = Outgoing { kind, deadline: Some(Nanos::from_millis(deadline_ms)), data: &vec![3; bytes] };
    pair.with(Side::A, |session, now| session.send(now, outgoing))
}

#[test]
fn the_mode_changes_under_a_running_stream() {
    let mut pair = pair(Mode::TotallyReliable, Loss::Bernoulli(0.05));
    for index in 0..60 {
        match index {
            20 => pair.with(Side::A, |session, now| session.set_mode(now, Mode::PartiallyReliable)),
            40 => pair.with(Side::A, |session, now| session.set_mode(now, Mode::TotallyReliable)),
            _ => {}
        }
        send(&mut pair, FrameKind::P, 45, 15_000).expect("accepted");
        pair.run_for(Nanos::from_millis(20));
    }
    pair.run_for(Nanos::from_millis(500));
    let end = pair.end(Side::B);
    let partial = |number: u64| (20..40).contains(&number);
    let complete = end.arrivals.iter().filter(|one| one.received.is_complete() && !partial(one.received.number.get()));
    assert_eq!(complete.count(), 40);
    assert!(end.arrivals.iter().any(|one| !one.received.is_complete()), "some frames have holes");
    let modes = [(Mode::PartiallyReliable, MessageNumber::new(20)), (Mode::TotallyReliable, MessageNumber::new(40))];
    assert_eq!(end.modes, modes);
}

#[test]
fn a_frame_is_delivered_at_its_deadline_with_a_map_of_its_holes() {
    let mut pair = pair(Mode::PartiallyReliable, Loss::Bernoulli(0.3));
    let begin = pair.now;
    send(&mut pair, FrameKind::I, 60, 50_000).expect("accepted");
    pair.run_for(Nanos::from_millis(200));
    let arrival = &pair.end(Side::B).arrivals[0];
    assert!(!arrival.received.is_complete() && !arrival.holes.is_empty());
    assert!(arrival.holes.iter().all(|hole| arrival.data[hole.clone()].iter().all(|byte| *byte == 0)));
    let after = arrival.at.since(begin);
    assert!((58..=62).contains(&(after.get() / 1_000_000)), "delivered after {after}");
    let acknowledged = arrival.received.arrived;
    assert_eq!(pair.end(Side::A).outcomes, [(MessageNumber::new(0), Outcome::Partly { acknowledged })]);
}

#[test]
fn a_frame_waits_at_most_the_maximum_time_for_a_receive() {
    let receiver = Config { receive_time: Some(Nanos::from_millis(30)), ..config(Mode::PartiallyReliable) };
    let link = LinkSettings { loss: Loss::Bernoulli(0.3), ..LinkSettings::default() };
    let mut pair = Pair::over(config(Mode::PartiallyReliable), receiver, link, 5);
    pair.run_for(Nanos::from_millis(200));
    let begin = pair.now;
    send(&mut pair, FrameKind::I, 1_000, 20_000).expect("accepted");
    pair.run_for(Nanos::from_millis(500));
    let arrival = &pair.end(Side::B).arrivals[0];
    assert!(!arrival.received.is_complete() && arrival.at.since(begin) <= Nanos::from_millis(55));
}

#[test]
fn a_lost_message_of_one_tpdu_is_sent_again_by_the_sender() {
    let mut pair = pair(Mode::TotallyReliable, Loss::Bernoulli(0.0));
    // The first message measures the round-trip time.
    send(&mut pair, FrameKind::Audio, 100, 100).expect("accepted");
    pair.run_for(Nanos::from_millis(200));
    pair.link(qfabric_metp::CarrierId(0), Side::A).settings.loss = Loss::Bernoulli(1.0);
    let begin = pair.now;
    send(&mut pair, FrameKind::Audio, 100, 100).expect("accepted");
    pair.run_for(Nanos::from_millis(1));
    pair.link(qfabric_metp::CarrierId(0), Side::A).settings.loss = Loss::Bernoulli(0.0);
    pair.run_for(Nanos::from_millis(300));
    let arrival = &pair.end(Side::B).arrivals[1];
    assert!(arrival.at.since(begin) <= Nanos::from_millis(80), "one timeout and one way");
    assert_eq!(pair.end(Side::A).session.statistics().optimistic, 1);
}

#[test]
fn after_a_second_timeout_all_unacknowledged_tpdus_are_sent_again() {
    let mut pair = pair(Mode::TotallyReliable, Loss::Bernoulli(0.0));
    // The first message measures the round-trip time.
    send(&mut pair, FrameKind::Audio, 100, 100).expect("accepted");
    pair.run_for(Nanos::from_millis(200));
    let lose = |pair: &mut Pair, part| {
        pair.link(qfabric_metp::CarrierId(0), Side::A).settings.loss = Loss::Bernoulli(part);
    };
    let timeouts = |pair: &mut Pair| {
        let statistics = pair.end(Side::A).session.statistics();
        (statistics.optimistic, statistics.pessimistic)
    };
    lose(&mut pair, 1.0);
    send(&mut pair, FrameKind::I, 100, 5_000).expect("accepted");
    while timeouts(&mut pair) == (0, 0) {
        pair.run_for(Nanos::from_millis(1));
    }
    // The second try leaves, and is lost too.
    pair.run_for(Nanos::from_millis(2));
    assert_eq!(timeouts(&mut pair), (1, 0), "first only the first TPDU");
    lose(&mut pair, 0.0);
    pair.run_for(Nanos::from_millis(300));
    assert_eq!(timeouts(&mut pair), (1, 1), "then all of them");
    let arrivals = &pair.end(Side::B).arrivals;
    assert!(arrivals.len() == 2 && arrivals[1].received.is_complete());
}

#[test]
fn frames_that_would_be_late_are_dropped_before_their_first_byte_b_frames_first() {
    let mut pair = pair(Mode::PartiallyReliable, Loss::Bernoulli(0.0));
    // The first message measures the round-trip time.
    send(&mut pair, FrameKind::Audio, 100, 100).expect("accepted");
    pair.run_for(Nanos::from_millis(200));
    // At 20 Mbit/s, 25 kB take 10.6 ms. With 20 ms of network delay, four frames arrive within 62 ms.
    for kind in [FrameKind::I, FrameKind::B, FrameKind::P, FrameKind::B, FrameKind::B, FrameKind::P] {
        send(&mut pair, kind, 62, 25_000).expect("accepted");
    }
    pair.run_for(Nanos::from_millis(300));
    let delivered: Vec<u64> = pair.end(Side::B).arrivals.iter().map(|one| one.received.number.get()).collect();
    assert_eq!(delivered, [0, 1, 2, 3, 6], "{:?}", pair.end(Side::A).outcomes);
    let dropped = pair.end(Side::A).outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Dropped(_)));
    assert_eq!(dropped.map(|(number, _)| number.get()).collect::<Vec<_>>(), [5, 4]);
    assert_eq!(pair.end(Side::A).session.statistics().dropped[FrameKind::B as usize], 2);
    let skipped: Vec<(u64, u64)> =
        pair.end(Side::B).skipped.iter().map(|(first, count)| (first.get(), *count)).collect();
    assert_eq!(skipped, [(4, 2)]);
}

#[test]
fn a_receiver_that_does_not_read_makes_a_reliable_sender_wait_in_bounded_memory() {
    let mut pair = pair(Mode::TotallyReliable, Loss::Bernoulli(0.0));
    pair.with(Side::B, |session, now| session.set_receiving(now, false));
    let (memory, mut accepted) = (pair.end(Side::B).session.memory(), 0);
    for _ in 0..60 {
        accepted += u64::from(send(&mut pair, FrameKind::Other, 60, 200_000).is_ok());
        pair.run_for(Nanos::from_millis(90));
    }
    assert_eq!(pair.end(Side::B).session.memory(), memory);
    assert!(accepted < 60 && pair.end(Side::A).session.backlog() <= Bytes::from_mib(4));
    pair.with(Side::B, |session, now| session.set_receiving(now, true));
    pair.run_for(Nanos::from_millis(10_000));
    let received = pair.end(Side::B).arrivals.iter().filter(|one| one.received.is_complete()).count();
    assert_eq!(received as u64, accepted);
}

#[test]
fn messages_beyond_the_admitted_amounts_are_refused_with_the_values() {
    let small = Config { largest_message: Bytes::new(1_000), ..config(Mode::TotallyReliable) };
    let mut pair = Pair::over(config(Mode::TotallyReliable), small, LinkSettings::default(), 5);
    // The peer's limit is not known yet.
    send(&mut pair, FrameKind::Other, 60, 70_000).expect("accepted");
    pair.run_for(Nanos::from_millis(200));
    let reason = DropReason::TooLargeForPeer;
    assert_eq!(pair.end(Side::A).outcomes, [(MessageNumber::new(0), Outcome::Dropped(reason))]);
    // Now it is, and each accepted message has its outcome all the same.
    assert_eq!(send(&mut pair, FrameKind::Other, 60, 1_001), Ok(MessageNumber::new(1)));
    assert_eq!(pair.end(Side::A).outcomes[1..], [(MessageNumber::new(1), Outcome::Dropped(reason))]);
    let refused = send(&mut pair, FrameKind::Other, 60, (1 << 20) + 1).unwrap_err();
    assert!(refused.problem().to_string().starts_with("the message has 1048577 bytes, of at most 1048576; split"));
    assert_eq!(send(&mut pair, FrameKind::Other, 60, 0), Err(SendRefusal::Empty));
    (0..64).for_each(|_| assert!(send(&mut pair, FrameKind::Other, 60, 900).is_ok()));
    let refused = send(&mut pair, FrameKind::Other, 60, 900).unwrap_err();
    assert_eq!(refused, SendRefusal::TooManyMessages { messages: 64, limit: 64 });
}

#[test]
fn a_message_that_left_before_the_peers_limit_was_known_does_not_hold_up_later_ones() {
    let small = Config { largest_message: Bytes::new(1_000), ..config(Mode::TotallyReliable) };
    let mut pair = Pair::over(config(Mode::TotallyReliable), small, LinkSettings::default(), 5);
    // It fits into the memory that each peer has, so it is sent at once.
    send(&mut pair, FrameKind::Other, 60, 60_000).expect("accepted");
    send(&mut pair, FrameKind::Other, 60, 900).expect("accepted");
    pair.run_for(Nanos::from_millis(500));
    let outcomes = [Outcome::Dropped(DropReason::TooLargeForPeer), Outcome::Delivered];
    assert_eq!(pair.end(Side::A).outcomes, [0, 1].map(|at| (MessageNumber::new(at as u64), outcomes[at])));
    assert_eq!(pair.end(Side::A).session.statistics().dropped_too_large, 1);
    assert_eq!(pair.end(Side::B).skipped, [(MessageNumber::new(0), 1)]);
    assert_eq!(pair.end(Side::B).arrivals.len(), 1);
}

#[test]
fn without_an_order_a_complete_message_does_not_wait() {
    let receiver = Config { order: DeliveryOrder::WhenComplete, ..config(Mode::TotallyReliable) };
    let link = LinkSettings { loss: Loss::Bernoulli(0.3), ..LinkSettings::default() };
    let mut pair = Pair::over(config(Mode::TotallyReliable), receiver, link, 5);
    (0..30).for_each(|_| assert!(send(&mut pair, FrameKind::Other, 100, 5_000).is_ok()));
    pair.run_for(Nanos::from_millis(2_000));
    let mut numbers: Vec<u64> = pair.end(Side::B).arrivals.iter().map(|one| one.received.number.get()).collect();
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    assert_eq!(numbers, (0..30).collect::<Vec<_>>());
}

#[test]
fn close_ends_both_sides_at_once() {
    let mut pair = pair(Mode::TotallyReliable, Loss::Bernoulli(0.0));
    send(&mut pair, FrameKind::Other, 60, 50_000).expect("accepted");
    pair.with(Side::A, |session, now| session.close(now));
    assert_eq!(pair.end(Side::A).outcomes, [(MessageNumber::new(0), Outcome::Unknown)]);
    pair.run_for(Nanos::from_millis(100));
    assert_eq!(pair.end(Side::A).ended, Some(EndReason::Closed));
    assert_eq!(pair.end(Side::B).ended, Some(EndReason::ClosedByPeer));
    assert_eq!(send(&mut pair, FrameKind::Other, 60, 5), Err(SendRefusal::Finished));
    let sent = [Side::A, Side::B].map(|side| pair.end(side).session.statistics().sent_bytes);
    pair.run_for(Nanos::from_millis(60_000));
    assert_eq!([Side::A, Side::B].map(|side| pair.end(side).session.statistics().sent_bytes), sent, "both are silent");
}

#[test]
fn a_configuration_that_contradicts_itself_is_refused_with_the_values() {
    let refused = |config: Config| {
        qfabric_metp::Session::new(config, qfabric_types::Instant::ZERO).unwrap_err().problem().to_string()
    };
    let config = config(Mode::TotallyReliable);
    let text = refused(Config { send_memory: Bytes::new(9), ..config.clone() });
    assert_eq!(text, "the send memory has 9 bytes; it needs 1048576 bytes; reserve memory for at least one message");
    assert!(refused(Config { tpdu_size: 100, ..config.clone() }).contains("100 bytes; allowed are 256 to 65000 bytes"));
    assert!(refused(Config { bucket: Bytes::new(9), ..config.clone() }).contains("2828 bytes"));
    assert!(refused(Config { rate: BitRate::ZERO, ..config.clone() }).contains("1 kbit/s"));
    assert!(refused(Config { messages_in_flight: 0, ..config.clone() }).contains("1 to 1024"));
    let error = Config { largest_message: Bytes::from_mib(16), ..config };
    assert!(refused(error).contains("16777215 bytes"));
    let _: fn(&InvalidConfig) -> _ = InvalidConfig::problem;
}
