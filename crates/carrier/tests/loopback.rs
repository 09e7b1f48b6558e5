//! Connections between two ends on loopback, with real certificates.

mod common;

use std::time::Duration;

use common::{PATIENCE, Realm, finish, frame, kind, name, patient, receive_all, send_all, target, until};
use qfabric_carrier::{
    CarrierKind, ClientConnection, DropReason, Engine, Error, Event, FrameKind, Laboratory, Mode, Options, Outcome,
    RateGrant, connect_plain,
};
use qfabric_types::{BitRate, Bytes, DelayProfile, Nanos};

fn options() -> Options {
    Options { rate: BitRate::new(100_000_000), ..patient() }
}

#[test]
fn frames_arrive_in_order_and_complete_in_both_directions() {
    let (_server, client, accepted) = Realm::new().pair(&options());
    assert_eq!((client.peer(), accepted.peer()), (&name("wall"), &name("cam")));
    std::thread::scope(|scope| {
        scope.spawn(|| send_all(&client, 0..100, None));
        scope.spawn(|| send_all(&accepted, 0..50, None));
        scope.spawn(|| receive_all(&client, 0..50));
        receive_all(&accepted, 0..100);
    });
    finish(&client, &accepted);
    let statistics = client.statistics();
    assert_eq!((statistics.session.messages, statistics.session.delivered), (100, 100));
    assert_eq!(statistics.carriers[0].kind, CarrierKind::QuicDatagrams);
}

#[test]
fn each_message_has_one_outcome_with_its_number() {
    let (_server, client, accepted) = Realm::new().pair(&options());
    send_all(&client, 0..24, None);
    receive_all(&accepted, 0..24);
    client.flush(PATIENCE).unwrap();
    let events = std::iter::from_fn(|| client.event(Duration::ZERO).ok());
    let outcomes: Vec<_> = events
        .filter_map(|event| match event {
            Event::Outcome { number, kind, outcome } => Some((number, kind, outcome)),
            _ => None,
        })
        .collect();
    let expected: Vec<_> = (0..24).map(|number| (number, kind(number), Outcome::Delivered)).collect();
    assert_eq!(outcomes.len(), expected.len());
    assert!(expected.iter().all(|one| outcomes.contains(one)), "{outcomes:?}");
}

#[test]
fn the_mode_is_switched_while_frames_flow() {
    let (_server, client, accepted) = Realm::new().pair(&options());
    send_all(&client, 0..12, None);
    client.set_mode(Mode::PartiallyReliable).unwrap();
    send_all(&client, 12..24, Some(Duration::from_secs(20)));
    let changed = until(&accepted, |event| matches!(event, Event::ModeChanged { .. }));
    assert_eq!(changed, Event::ModeChanged { mode: Mode::PartiallyReliable, from: 12 });
    client.set_mode(Mode::TotallyReliable).unwrap();
    send_all(&client, 24..36, None);
    receive_all(&accepted, 0..36);
    let changed = until(&accepted, |event| matches!(event, Event::ModeChanged { .. }));
    assert_eq!(changed, Event::ModeChanged { mode: Mode::TotallyReliable, from: 24 });
    finish(&client, &accepted);
}

#[test]
fn a_carrier_is_replaced_under_a_running_stream_and_nothing_is_lost() {
    let realm = Realm::new();
    let (server, client, accepted) = realm.pair(&options());
    std::thread::scope(|scope| {
        scope.spawn(|| receive_all(&accepted, 0..150));
        send_all(&client, 0..50, None);
        let new = client.replace(None, server.address(), PATIENCE).unwrap();
        assert_eq!(new, 1);
        send_all(&client, 50..100, None);
        client.rebind(1, "127.0.0.1:0".parse().unwrap()).unwrap();
        send_all(&client, 100..150, None);
    });
    let carriers = client.statistics().carriers;
    assert_eq!(carriers.iter().map(|carrier| carrier.carrier).collect::<Vec<_>>(), [1]);
    finish(&client, &accepted);
}

#[test]
fn a_receiver_that_stops_reading_makes_the_sender_wait_and_memory_stays_bounded() {
    let small = Options { largest_message: Bytes::new(130_000), messages_in_flight: 4, ..options() };
    let (_server, client, accepted) = Realm::new().pair(&small);
    let mut sent = 0;
    let refused = loop {
        match client.send(kind(sent), frame(sent), None, Duration::from_millis(1_500)) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 2_000, "nothing stops the sender");
    };
    assert!(matches!(refused, Error::TimeOut { .. }), "{refused}");
    std::thread::scope(|scope| {
        scope.spawn(|| receive_all(&accepted, 0..sent + 24));
        send_all(&client, sent..sent + 24, None);
    });
    finish(&client, &accepted);
}

#[test]
fn late_frames_are_dropped_and_the_others_arrive_in_time() {
    let slow = Options { rate: BitRate::new(2_000_000), mode: Mode::PartiallyReliable, ..patient() };
    let (_server, client, accepted) = Realm::new().pair(&slow);
    // Each frame of 4 kB takes 16 ms; the deadline does not allow a queue of them. The first may take its time.
    let sender = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            for number in 0..60 {
                let deadline = (number > 0).then_some(Duration::from_millis(60));
                client.send(FrameKind::B, vec![number; 4_000], deadline, PATIENCE).unwrap();
            }
            client.flush(PATIENCE).unwrap();
            client.statistics().session
        });
        let mut arrived = 0;
        let read = || (0..60).take_while(|_| accepted.receive(Duration::from_millis(20)).is_ok()).count();
        while !sender.is_finished() {
            arrived += read();
        }
        arrived += read();
        assert!((1..60).contains(&arrived), "{arrived} arrived");
        sender.join().unwrap()
    });
    assert_eq!(sender.messages, 60);
    assert!(sender.dropped.iter().sum::<u64>() > 0, "{sender:?}");
}

#[test]
fn a_grant_replaces_congestion_control_until_it_is_taken_back() {
    let (_server, client, accepted) = Realm::new().pair(&options());
    client.grant(Some(RateGrant::laboratory(BitRate::new(40_000_000)))).unwrap();
    let statistics = client.statistics();
    assert_eq!((statistics.granted, statistics.rate), (Some(BitRate::new(40_000_000)), BitRate::new(40_000_000)));
    send_all(&client, 0..24, None);
    receive_all(&accepted, 0..24);
    client.grant(None).unwrap();
    assert_eq!(client.statistics().granted, None);
    finish(&client, &accepted);
}

fn write_profile(file: &std::path::Path) {
    let (host, kernel, interface) = ("wall".to_owned(), "7.3".to_owned(), "lo".parse().unwrap());
    let profile = DelayProfile { host, interface, kernel, min_rtt: Nanos::from_millis(900), points: Vec::new() };
    std::fs::write(file, serde_json::to_vec(&profile).unwrap()).unwrap();
}

#[test]
fn messages_under_a_granted_rate_renew_the_stored_profile_and_others_do_not() {
    let realm = Realm::new();
    let (_server, client, accepted) = realm.pair(&options());
    let (file, sizes) = (realm.folder.path().join("net-wall.json"), [4_000, 20_000, 90_000].map(Bytes::new));
    let missing = client.record_delays(&file, &sizes).unwrap_err();
    assert!(missing.problem().next_step.contains("qfabric net profile"), "{missing}");
    // `no_profile` is the daemon's code for a contract without a profile of CPU times.
    assert_eq!(missing.problem().code, "no_delay_profile");
    write_profile(&file);
    assert!(client.record_delays(&file, &[]).unwrap_err().to_string().contains("1 to 16 sizes"));
    client.record_delays(&file, &sizes).unwrap();
    // 100 B frames without a grant.
    send_all(&client, 0..150, None);
    receive_all(&accepted, 0..150);
    client.flush(PATIENCE).unwrap();
    let rate = BitRate::new(40_000_000);
    client.grant(Some(RateGrant::laboratory(rate))).unwrap();
    assert_eq!((client.statistics().renewals, client.statistics().granted), (0, Some(rate)));
    // 240 frames have 160 B frames of 3 to 4 kB and 60 P frames: the former renew their point once. I frames are too large.
    send_all(&client, 150..390, None);
    receive_all(&accepted, 150..390);
    finish(&client, &accepted);
    let statistics = client.statistics();
    if statistics.granted.is_none() {
        return println!("this machine delays packets so much that the watchdog has revoked the rate");
    }
    assert_eq!((statistics.renewals, statistics.renewal_failure), (1, None));
    let profile: DelayProfile = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let [point] = &profile.points[..] else { panic!("{profile:?}") };
    assert_eq!((point.message_bytes, point.rate_bps, point.arrived, point.lost), (sizes[0], rate, 100, 0));
    assert!(point.p50 > Nanos::ZERO && point.p50 <= point.p99, "{point:?}");
    assert!(Nanos::ZERO < profile.min_rtt && profile.min_rtt < Nanos::from_millis(900), "its own round trip");
}

#[test]
fn plain_udp_is_refused_beyond_loopback_unless_it_is_a_laboratory() {
    let (here, there) = ("127.0.0.1:47801".parse().unwrap(), "127.0.0.1:47802".parse().unwrap());
    let (one, other) =
        (connect_plain(here, there, options(), None).unwrap(), connect_plain(there, here, options(), None).unwrap());
    send_all(&one, 0..24, None);
    receive_all(&other, 0..24);
    finish(&one, &other);
    let away = "192.0.2.1:7800".parse().unwrap();
    let Err(refused) = connect_plain("0.0.0.0:0".parse().unwrap(), away, options(), None) else {
        panic!("not refused")
    };
    assert!(refused.to_string().contains("neither encrypted nor authenticated"), "{refused}");
    drop(connect_plain("0.0.0.0:0".parse().unwrap(), away, options(), Some(Laboratory)));
}

#[test]
fn a_closed_connection_says_so_on_both_sides() {
    let realm = Realm::new();
    let (server, client, accepted) = realm.pair(&options());
    accepted.close();
    assert!(matches!(accepted.send(FrameKind::I, vec![1], None, PATIENCE), Err(Error::Ended(_))));
    let end = client.wait_for_end(PATIENCE).unwrap();
    assert_eq!(end, qfabric_carrier::End::ClosedByPeer);
    drop(server);
    let within = Options { handshake_time: Duration::from_millis(300), ..options() };
    let nobody = ClientConnection::open(target("127.0.0.1:9".parse().unwrap()), realm.tls("cam"), within);
    let Err(nobody) = nobody else { panic!("somebody answered") };
    assert!(matches!(nobody, Error::NoAnswer { .. } | Error::Handshake { .. }), "{nobody}");
}

#[test]
fn a_connection_with_a_code_point_loses_nothing_also_after_its_address_changes() {
    let realm = Realm::new();
    let (_server, client, accepted) = realm.pair(&Options { dscp: Some(46), ..options() });
    std::thread::scope(|scope| {
        scope.spawn(|| receive_all(&accepted, 0..100));
        send_all(&client, 0..50, None);
        client.rebind(0, "127.0.0.1:0".parse().unwrap()).unwrap();
        send_all(&client, 50..100, None);
    });
    finish(&client, &accepted);
    let wrong = Options { dscp: Some(64), ..options() };
    let Err(refused) = ClientConnection::open(target("127.0.0.1:9".parse().unwrap()), realm.tls("cam"), wrong) else {
        panic!("not refused")
    };
    assert!(["64", "0 to 63"].iter().all(|part| refused.to_string().contains(part)), "{refused}");
}

#[test]
fn a_connection_does_not_change_the_address_of_its_service() {
    let realm = Realm::new();
    let (server, _client, accepted) = realm.pair(&options());
    let refused = accepted.rebind(0, "127.0.0.1:0".parse().unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Option { option: "rebind", .. }), "{refused}");
    realm.open("cam", server.address(), options()).unwrap();
}

#[test]
fn a_message_above_the_own_size_is_refused_with_it_and_one_above_the_others_size_is_named_as_the_reason() {
    for engine in [Engine::Metp, Engine::Streams] {
        let realm = Realm::new();
        let server = realm.serve(Options { engine, largest_message: Bytes::new(50_000), ..options() });
        let client = realm.open("cam", server.address(), Options { engine, ..options() }).unwrap();
        let accepted = server.accept(PATIENCE).unwrap();
        let refused = client.send(FrameKind::I, vec![0; (1 << 20) + 1], None, PATIENCE).unwrap_err();
        assert_eq!(refused.to_string(), "the message has 1048577 bytes, of at most 1048576");
        client.send(FrameKind::I, vec![0; 60_000], None, PATIENCE).unwrap();
        let outcome = Outcome::Dropped(DropReason::TooLargeForPeer);
        let found = until(&client, |event| matches!(event, Event::Outcome { .. }));
        assert_eq!(found, Event::Outcome { number: 0, kind: FrameKind::I, outcome });
        assert_eq!(client.statistics().session.dropped_too_large, 1);
        client.send(FrameKind::P, vec![7; 900], None, PATIENCE).unwrap();
        let next = accepted.receive(PATIENCE).unwrap();
        assert_eq!((next.number, next.data.len()), (1, 900), "it does not wait for the refused one");
    }
}

#[test]
fn streams_carry_the_same_messages() {
    let (_server, client, accepted) = Realm::new().pair(&Options { engine: Engine::Streams, ..options() });
    send_all(&client, 0..50, None);
    receive_all(&accepted, 0..50);
    finish(&client, &accepted);
}
