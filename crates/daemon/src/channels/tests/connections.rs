//! Events to an application's connection, and messages from it.

use qfabric_types::channel_wire::parts;

use super::*;

#[test]
fn what_waits_in_a_sinks_queue_or_was_dropped_there_was_not_achieved() {
    let host = Host::start(Vec::new());
    let (alice, _end) = host.reader(ALICE);
    alice.create("video").unwrap();
    let (source, sink) = (alice.source("video").unwrap(), alice.sink("video").unwrap());
    host.turn();
    let minute = Nanos::from_millis(60_000);
    let rate = |minutes| host.fabric.reports.take(clock::now() + minute.saturating_mul(minutes), minute)[0].rate_milli;
    (0..100).for_each(|number| assert_eq!(alice.submit(source, number), 1));
    host.turn();
    assert_eq!(rate(1), 0, "no event has been read");
    alice.reads(sink, 4);
    assert!(rate(3) > 0);
    assert_eq!(rate(5), 0);
}

#[test]
fn what_the_application_read_too_late_was_not_achieved() {
    let host = Host::start(Vec::new());
    let (alice, End(mut duplex, socket)) = host.reader(ALICE);
    alice.create("video").unwrap();
    let (source, sink) = (alice.source("video").unwrap(), alice.sink("video").unwrap());
    host.turn();
    (0..10).for_each(|number| assert_eq!(alice.submit(source, number), 1));
    host.turn();
    alice.reads(sink, 10);
    let mut message = Vec::new();
    let late = LateReport { sink: sink.0, host: "alpha", source: source.0, events: 10 };
    FromClient::Late(late).encode(&mut message);
    assert!(duplex.send(&socket, &message).unwrap());
    host.fabric.read_messages(alice.lease, &mut vec![0; MAX_MESSAGE], None);
    let minute = Nanos::from_millis(60_000);
    assert_eq!(host.fabric.reports.take(clock::now() + minute, minute)[0].rate_milli, 0);
}

#[test]
fn what_finds_no_room_waits_and_goes_out_in_order_when_there_is() {
    let host = Host::start(Vec::new());
    let (alice, mut end) = host.reader(ALICE);
    alice.create("video").unwrap();
    let (source, sink) = (alice.source("video").unwrap(), alice.sink("video").unwrap());
    host.turn();
    let mut buffer = vec![0; MAX_MESSAGE];
    let (mut all, mut submitted) = (Vec::new(), 0);
    while submitted < 60 {
        // Fills the queue; the ring holds fewer.
        (0..15).for_each(|number| assert_eq!(alice.submit_long(source, submitted + number, 16_000), 1));
        submitted += 15;
        host.turn();
        alice.reads(sink, 15);
    }
    assert_eq!(host.fabric.registry().leases[&alice.lease].outbox.len(), 1);
    assert_eq!(host.fabric.network.look(|node| node.sink_counts(sink)).unwrap().queued, 16);
    for _ in 0..10 {
        all.extend(came(&mut end));
        host.fabric.serve_lease(alice.lease, EventFlags::IN, &mut buffer, None);
        host.turn();
    }
    // The events in the ring, the waiting event, and the events for which there was credit.
    assert!(all.is_sorted() && all.first() == Some(&0) && all.len() == 16 + 1 + 15, "{all:?}");
}

/// The numbers and lengths of the events that came. Each has only bytes 7 behind its number.
fn came_with_lengths(End(duplex, socket): &mut End) -> Vec<(i32, usize)> {
    let (mut buffer, mut all) = (vec![0; MAX_MESSAGE], Vec::new());
    while let Some(length) = duplex.next(&*socket, &mut buffer).unwrap() {
        if let Some(FromDaemon::Event(event)) = FromDaemon::decode(&buffer[..length]) {
            let (number, rest) = event.payload.split_first_chunk().unwrap();
            assert!(rest.iter().all(|byte| *byte == 7));
            all.push((i32::from_le_bytes(*number), event.payload.len()));
        }
    }
    all
}

#[test]
fn large_events_that_are_kept_for_a_slow_sink_arrive_in_order_and_unchanged() {
    let host = Host::start(Vec::new());
    let (alice, mut end) = host.reader(ALICE);
    let request = serde_json::json!({
        "lease": alice.lease, "name": "video", "formats": FRAME, "pressure": "block", "patience_ns": 10_000_000_000u64,
    });
    host.fabric.create(alice.peer, &serde_json::from_value(request).unwrap()).unwrap();
    let (source, sink) = (alice.source("video").unwrap(), alice.sink("video").unwrap());
    host.turn();
    // The queue of the sink takes the first ones; a small event is kept between large ones.
    (0..16).for_each(|number| assert_eq!(alice.submit_long(source, number, 16_000), 1));
    let mut buffer = vec![0; MAX_MESSAGE];
    let kept = [(16, 16_000), (17, 4), (18, 16_000), (19, 9_000)];
    for (number, bytes) in kept {
        let mut payload = i32::to_le_bytes(number).to_vec();
        payload.resize(bytes, 7);
        let mut message = Vec::new();
        let submit = SubmitRequest { source: source.0, keep: true, payload: &payload, ..SubmitRequest::default() };
        FromClient::Submit(submit).encode(&mut message);
        assert!(end.0.send(&end.1, &message).unwrap());
        host.fabric.read_messages(alice.lease, &mut buffer, None);
    }
    assert!(host.fabric.registry().leases[&alice.lease].held.has(source));
    let mut all = Vec::new();
    for _ in 0..4 {
        alice.reads(sink, 10);
        host.turn();
        all.extend(came_with_lengths(&mut end));
        host.fabric.serve_lease(alice.lease, EventFlags::IN, &mut buffer, None);
    }
    assert_eq!(all, (0..16).map(|number| (number, 16_000)).chain(kept).collect::<Vec<_>>());
    assert!(!host.fabric.registry().leases[&alice.lease].held.has(source));
}

/// A connection with a source, a message that submits an event, and the number of submitted events.
pub(super) fn submitting(host: &Host) -> (User<'_>, End, Vec<u8>, impl Fn() -> u64) {
    let (alice, end) = host.reader(ALICE);
    alice.create("video").unwrap();
    let source = alice.source("video").unwrap();
    let mut message = Vec::new();
    FromClient::Submit(SubmitRequest { source: source.0, payload: &[0; 4], ..SubmitRequest::default() })
        .encode(&mut message);
    (alice, end, message, || host.fabric.totals.submitted.load(Ordering::Relaxed))
}

#[test]
fn a_message_is_read_at_once_and_the_packets_that_announce_messages_never_fill_the_socket() {
    let host = Host::start(Vec::new());
    let (alice, End(mut duplex, socket), message, heard) = submitting(&host);
    let (mut buffer, mut most) = (vec![0; MAX_MESSAGE], 0);
    for number in 1..=1000 {
        assert!(duplex.send(&socket, &message).unwrap());
        host.fabric.serve_lease(alice.lease, EventFlags::IN, &mut buffer, None);
        let here = host.fabric.registry().leases[&alice.lease].socket.clone();
        // One byte each.
        most = most.max(rustix::io::ioctl_fionread(&*here).unwrap());
        assert_eq!(heard(), number);
    }
    assert!((1..40).contains(&most), "{most} unread packets");
}

#[test]
fn the_end_of_a_connection_is_seen_behind_unread_packets_and_its_last_messages_are_read() {
    let host = Host::start(Vec::new());
    let (alice, End(mut duplex, socket), message, heard) = submitting(&host);
    let (mut buffer, mut noted) = (vec![0; MAX_MESSAGE], Noted::default());
    for number in 1..=3 {
        assert!(duplex.send(&socket, &message).unwrap());
        host.fabric.serve_lease(alice.lease, EventFlags::IN, &mut buffer, None);
        assert_eq!(heard(), number);
    }
    assert!(duplex.send(&socket, &message).unwrap());
    drop(socket);
    host.fabric.serve_lease(alice.lease, EventFlags::IN | EventFlags::HUP, &mut buffer, None);
    host.fabric.mailbox.take(&mut noted);
    assert_eq!((heard(), noted.over), (4, vec![alice.lease]));
}

#[test]
fn who_says_much_is_heard_in_turns_and_nonsense_is_counted() {
    let host = Host::start(Vec::new());
    let (alice, End(mut duplex, socket), message, heard) = submitting(&host);
    (0..100).for_each(|_| assert!(duplex.send(&socket, &message).unwrap()));
    assert!(duplex.send(&socket, b"nonsense").unwrap());
    let (mut buffer, mut noted) = (vec![0; MAX_MESSAGE], Noted::default());
    // Two wake-ups cause one turn.
    (0..2).for_each(|_| host.fabric.read_messages(alice.lease, &mut buffer, None));
    assert_eq!(heard(), 100);
    (0..100).for_each(|_| assert!(duplex.send(&socket, &message).unwrap()));
    host.fabric.read_messages(alice.lease, &mut buffer, None);
    host.fabric.mailbox.unread(alice.lease);
    host.fabric.mailbox.take(&mut noted);
    assert_eq!((heard(), noted.unread), (164, vec![alice.lease]));
    assert_eq!(host.fabric.totals.nonsense.load(Ordering::Relaxed), 1);
}

/// The publisher of an event in parts may wait for room in its ring.
#[test]
fn a_connection_that_has_sent_a_part_of_an_event_is_looked_at_as_soon_as_others() {
    let host = Host::start(Vec::new());
    let (alice, End(mut duplex, socket)) = host.reader(ALICE);
    alice.create("video").unwrap();
    let source = alice.source("video").unwrap();
    let (mut whole, mut long, mut part, mut buffer) = (Vec::new(), Vec::new(), Vec::new(), vec![0; MAX_MESSAGE]);
    let event = SubmitRequest { source: source.0, keep: true, payload: &[0; 16 << 10], ..SubmitRequest::default() };
    FromClient::Submit(event).encode(&mut whole);
    FromClient::Submit(SubmitRequest { payload: &[0; 64 << 10], ..event }).encode(&mut long);
    assert!(parts(&long).next(&mut part));
    let mut look_after = |message: &[u8]| {
        assert!(duplex.send(&socket, message).unwrap());
        host.fabric.read_messages(alice.lease, &mut buffer, None);
        host.fabric.registry().leases[&alice.lease].habit.look(1)
    };
    assert!(look_after(&whole) > look_after(&part));
}

/// A panic that the socket's thread contains does not leave a connection that nothing wakes any more.
#[test]
fn a_connection_is_woken_again_after_a_panic_in_its_turn() {
    let host = Host::start(Vec::new());
    let (alice, End(_duplex, socket)) = host.reader(ALICE);
    let mut registry = host.fabric.registry();
    let contained = qfabric_sync::contain(|| {
        let turn = ReadTurn::begin(&mut registry, alice.lease);
        turn.registry.leases.get_mut(&alice.lease).unwrap().owes_wake = true;
        panic!("a defect in a message's handler");
    });
    assert!(contained.is_err());
    let lease = &registry.leases[&alice.lease];
    assert!(!lease.is_read && !lease.owes_wake);
    assert_eq!(rustix::io::read(&socket, &mut [0; 8]), Ok(1), "the byte that wakes it");
}
