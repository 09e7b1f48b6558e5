//! Events, their order, and slow sinks.

use qfabric_types::Nanos;

use super::*;
use crate::{Limits, Order, Target};

/// Events reach all sinks of all hosts, the source's host included, in the order of their numbers.
pub fn events_reach_all_sinks_of_all_hosts_in_order<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let sinks: Vec<_> = hosts.iter().map(|host| sink(world, host, &video, called())).collect();
    for number in 1..=50 {
        let sent = submit_frame(world, &hosts[0], from, 0, number);
        assert_eq!((sent.number, sent.local, sent.remote as usize), (number as u64, 1, hosts.len() - 1));
    }
    world.settle();
    for (host, sink) in hosts.iter().zip(&sinks) {
        assert_eq!(numbers(world, host, *sink), (1..=50).collect::<Vec<_>>(), "{host}");
    }
    world.quiet();
    let counts = counts_of(world, &hosts[0], from);
    let all = 50 * hosts.len() as u64;
    assert_eq!(
        (counts.submitted, counts.sent, counts.delivered, counts.lost),
        (50, all, all, 0),
        "the source's own host is included"
    );
}

/// A sink gets the types that it subscribed to.
pub fn sinks_get_the_types_they_want<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let only = |name: &str| SinkSpec { types: vec![name.to_owned()], ..called() };
    let marks = sink(world, &hosts[1], &video, only("mark"));
    let frames = sink(world, &hosts[2], &video, only("frame"));
    let both = sink(world, &hosts[2], &video, called());
    submit_frame(world, &hosts[0], from, 1, 1);
    let mark = Submission { event_type: 1, payload: &[0; 8], ..Submission::default() };
    submit(world, &hosts[0], from, &mark).expect("submitted");
    world.settle();
    assert_eq!(numbers(world, &hosts[1], marks), [2]);
    let delivered = world.delivered(&hosts[2]);
    let of = |sink| delivered.iter().filter(|event| event.sink == sink).map(|event| event.number).collect::<Vec<_>>();
    assert_eq!((of(frames), of(both)), (vec![1], vec![1, 2]));
}

/// An event with attributes can be for one host, or for one sink.
pub fn an_event_can_be_for_one_host_or_one_sink<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let one = sink(world, &hosts[1], &video, called());
    let two = sink(world, &hosts[1], &video, called());
    let other = sink(world, &hosts[2], &video, called());
    let attributes = [("quality", 7), ("stream", -1)];
    let event = |target| Submission { target, attributes: &attributes, payload: &[0; 8], ..Submission::default() };
    let host = submit(world, &hosts[0], from, &event(Target::Host(&hosts[1]))).expect("submitted");
    let sink = submit(world, &hosts[0], from, &event(Target::Sink(&hosts[1], two.0))).expect("submitted");
    assert_eq!((host.remote, sink.remote), (2, 1));
    world.settle();
    let delivered = world.delivered(&hosts[1]);
    let seen: Vec<_> = delivered.iter().map(|event| (event.sink, event.number)).collect();
    assert_eq!(seen, [(one, 1), (two, 1), (two, 2)]);
    assert_eq!(delivered[0].attributes, [("quality".to_owned(), 7), ("stream".to_owned(), -1)]);
    assert_eq!(numbers(world, &hosts[2], other), [0; 0]);
}

/// Unknown types, wrong sizes and similar errors are refused.
pub fn what_cannot_be_an_event_is_refused<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, called());
    let (big, many) = (vec![0; 16 << 10], vec![("a", 1); 17]);
    let good = Submission { payload: &[0; 8], ..Submission::default() };
    let mut refused = |event: Submission<'_>| submit(world, &hosts[0], from, &event).expect_err("refused").to_string();
    assert!(
        refused(Submission { event_type: 2, ..good })
            .contains("2 types of events, numbered from 0; there is no type 2")
    );
    assert!(
        refused(Submission { payload: &[0; 7], ..good })
            .contains("7 bytes does not fit: its format has 8 bytes, the limit is 1048576")
    );
    assert!(refused(Submission { priority: 8, ..good }).contains("priority 8"));
    assert!(refused(Submission { attributes: &many, ..good }).contains("17 attributes on an event, the limit is 16"));
    assert!(refused(Submission { attributes: &[("a b", 1)], ..good }).contains("\"a b\" is not an attribute"));
    assert_eq!(submit(world, &hosts[0], SourceId(999), &good), Err(SubmitError::Gone(999)));
    submit(world, &hosts[0], from, &Submission { payload: &big, ..good }).expect("more than the format is fine");
    world.settle();
    let delivered = world.delivered(&hosts[1]);
    assert_eq!(delivered.iter().map(|event| (event.sink, event.payload.len())).collect::<Vec<_>>(), [(to, 16 << 10)]);
}

/// Late events are dropped and counted at the source, and at the sink.
pub fn late_events_are_dropped_and_counted<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, queued(16));
    let late = world.with(&hosts[0], |node, now| {
        let deadline = Some(now - Nanos::from_millis(5));
        node.submit(from, &Submission { deadline, payload: &[0; 8], ..Submission::default() }, now)
    });
    assert_eq!(late, Err(SubmitError::Late { by: Nanos::from_millis(5) }));
    for left_ms in [400, 60_000] {
        let sent = world.with(&hosts[0], |node, now| {
            let deadline = Some(now + Nanos::from_millis(left_ms));
            node.submit(from, &Submission { deadline, payload: &[0; 8], ..Submission::default() }, now)
        });
        assert_eq!(sent.map(|sent| sent.remote), Ok(1));
    }
    world.run_for(Nanos::from_millis(1_000));
    assert_eq!(take_all(world, &hosts[1], to).len(), 1, "the deadline of the other event passed in the queue");
    world.quiet();
    let counts = balanced(world, &hosts[1], to);
    assert_eq!((counts.sent, counts.delivered, counts.late), (2, 1, 1));
    let counts = counts_of(world, &hosts[0], from);
    assert_eq!((counts.expired, counts.sent, counts.delivered, counts.late), (1, 2, 1, 1));
}

/// Events that were taken in time but read too late count as late, at the sink and at its source, on one host or two.
pub fn events_that_their_reader_comes_to_too_late_are_late<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let sinks = [0, 1].map(|host| sink(world, &hosts[host], &video, queued(16)));
    world.quiet();
    for number in 0..4 {
        submit_frame(world, &hosts[0], from, number, 0);
    }
    for (host, to) in hosts.iter().zip(sinks) {
        world.quiet();
        assert_eq!(take_all(world, host, to).len(), 4);
        world.quiet();
        for (events, of, late) in [(1, from, 1), (9, from, 3), (1, SourceId(77), 0)] {
            let came = world.with(host, |node, _| node.came_late(to, (&hosts[0], of), events));
            assert_eq!(came, Ok(late));
        }
        world.quiet();
        let counts = balanced(world, host, to);
        assert_eq!((counts.sent, counts.delivered, counts.late), (4, 0, 4), "no more are counted than were taken");
    }
    let counts = counts_of(world, &hosts[0], from);
    assert_eq!((counts.sent, counts.delivered, counts.late), (8, 0, 8));
}

/// Among queued events the highest priority is first, and within one priority the earliest deadline.
pub fn priorities_come_first_and_deadlines_in_order<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &Spec { order: Order::Deadline, ..spec() });
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, queued(16));
    for (kind, priority, left_s) in
        [(1, 0, Some(60)), (2, 0, Some(30)), (3, 0, None), (4, 5, Some(90)), (5, 0, Some(40))]
    {
        world
            .with(&hosts[0], |node, now| {
                let deadline = left_s.map(|s| now + Nanos::from_millis(1000 * s));
                let payload = frame(kind, 0);
                node.submit(from, &Submission { deadline, priority, payload: &payload, ..Submission::default() }, now)
            })
            .expect("submitted");
    }
    world.settle();
    let kinds: Vec<u8> = take_all(world, &hosts[1], to).iter().map(|payload| payload[0]).collect();
    assert_eq!(kinds, [4, 2, 5, 1, 3]);
}

/// A sink that never reads loses its own events; other sinks lose none.
pub fn a_sink_that_never_reads_holds_up_nobody<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let deaf = sink(world, &hosts[1], &video, queued(4));
    let healthy = sink(world, &hosts[2], &video, called());
    for number in 1..=100 {
        submit_frame(world, &hosts[0], from, 0, number);
    }
    world.quiet();
    assert_eq!(numbers(world, &hosts[2], healthy), (1..=100).collect::<Vec<_>>());
    let counts = balanced(world, &hosts[1], deaf);
    assert_eq!((counts.sent, counts.dropped, counts.queued), (100, 96, 4));
    let counts = counts_of(world, &hosts[0], from);
    assert_eq!((counts.sent, counts.delivered, counts.dropped), (200, 100, 96), "the report has reached the source");
}

/// `DropOldest` keeps the newest events, `DropNewest` the oldest; a low priority never displaces a higher one.
pub fn a_full_queue_keeps_what_its_policy_says<W: World>(world: &mut W) {
    for (name, pressure, kept) in [("old", Pressure::DropOldest, [9, 4, 5]), ("new", Pressure::DropNewest, [9, 1, 2])] {
        let channel = data(name);
        let hosts = everywhere(world, &channel, &spec_with(pressure));
        let from = source(world, &hosts[0], &channel);
        let to = sink(world, &hosts[1], &channel, queued(3));
        let important = frame(9, 0);
        let event = Submission { priority: 7, payload: &important, ..Submission::default() };
        submit(world, &hosts[0], from, &event).expect("submitted");
        for kind in 1..=5 {
            submit_frame(world, &hosts[0], from, kind, 0);
        }
        world.settle();
        let kinds: Vec<u8> = take_all(world, &hosts[1], to).iter().map(|payload| payload[0]).collect();
        assert_eq!(kinds, kept, "{pressure:?}");
    }
}

/// On a channel that blocks, a source waits until the sink has read; no event is dropped.
pub fn a_blocked_source_goes_on_when_the_sink_has_read<W: World>(world: &mut W) {
    let video = data("video");
    let patience = Nanos::from_millis(10_000);
    let hosts = everywhere(world, &video, &spec_with(Pressure::Block { patience }));
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, queued(4));
    let (mut sent, mut blocked, mut taken) = (0, 0, 0);
    while sent < 40 {
        let payload = frame(0, sent);
        match submit(world, &hosts[0], from, &Submission { payload: &payload, ..Submission::default() }) {
            Ok(_) => sent += 1,
            Err(SubmitError::WouldBlock { .. }) => {
                blocked += 1;
                assert!(blocked < 200, "the source goes on");
                taken += take_all(world, &hosts[1], to).len();
                world.run_for(Nanos::from_millis(50));
            }
            Err(other) => panic!("{other}"),
        }
    }
    world.settle();
    taken += take_all(world, &hosts[1], to).len();
    assert!(blocked >= 40 / 4 - 1, "{blocked} times");
    assert_eq!(taken, 40);
    world.quiet();
    assert_eq!(balanced(world, &hosts[1], to).dropped, 0);
}

/// The network carries every event that a blocking channel accepts: a sink's queue with room for more bytes than the
/// network may hold loses no event.
pub fn a_blocking_channel_loses_nothing_of_large_events<W: World>(world: &mut W) {
    let video = data("video");
    let patience = Nanos::from_millis(10_000);
    let hosts = everywhere(world, &video, &spec_with(Pressure::Block { patience }));
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, queued(200));
    let (mut sent, mut first, mut taken) = (0, None, 0);
    while sent < 400 {
        let payload = [3; 16 << 10];
        match submit(world, &hosts[0], from, &Submission { payload: &payload, ..Submission::default() }) {
            Ok(_) => sent += 1,
            Err(SubmitError::WouldBlock { .. }) => {
                first.get_or_insert(sent);
                world.run_for(Nanos::from_millis(25));
                taken += take_all(world, &hosts[1], to).len();
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(first.is_some_and(|first| first <= Limits::UNREAD >> 14), "no more than the sink keeps: {first:?}");
    world.settle();
    taken += take_all(world, &hosts[1], to).len();
    assert_eq!(taken, 400);
    world.quiet();
    assert_eq!(balanced(world, &hosts[1], to).lost, 0);
}

/// A sink that does not read holds up the source once, for the channel's patience.
pub fn a_blocked_source_waits_no_longer_than_its_patience<W: World>(world: &mut W) {
    let video = data("video");
    let patience = Nanos::from_millis(300);
    let hosts = everywhere(world, &video, &spec_with(Pressure::Block { patience }));
    let from = source(world, &hosts[0], &video);
    let deaf = sink(world, &hosts[1], &video, queued(2));
    let healthy = sink(world, &hosts[2], &video, called());
    let payload = frame(0, 0);
    let event = Submission { payload: &payload, ..Submission::default() };
    for _ in 0..2 {
        submit(world, &hosts[0], from, &event).expect("there is room");
    }
    world.settle();
    let first = submit(world, &hosts[0], from, &event);
    assert!(matches!(first, Err(SubmitError::WouldBlock { .. })), "{first:?}");
    world.run_for(patience + Nanos::from_millis(20));
    for _ in 0..10 {
        let sent = submit(world, &hosts[0], from, &event).expect("it has waited long enough");
        assert_eq!((sent.remote, sent.dropped), (1, 1));
    }
    world.settle();
    assert_eq!(numbers(world, &hosts[2], healthy).len(), 12);
    assert_eq!(take_all(world, &hosts[1], deaf).len(), 2);
    world.settle();
    assert_eq!(submit(world, &hosts[0], from, &event).expect("it has read").remote, 2);
}

/// Events that are sent but do not arrive are counted as lost by sink and source.
pub fn what_is_lost_is_counted<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, called());
    world.run_for(Nanos::from_millis(5_000));
    for number in 0..500 {
        submit_frame(world, &hosts[0], from, 0, number);
        world.run_for(Nanos::from_millis(2));
    }
    world.quiet();
    let counts = balanced(world, &hosts[1], to);
    assert_eq!(counts.sent, 500);
    let source = counts_of(world, &hosts[0], from);
    assert_eq!((source.sent, source.delivered, source.lost), (500, counts.delivered, counts.lost));
}

fn counts_of<W: World>(world: &mut W, host: &Name, source: SourceId) -> crate::SourceCounts {
    world.with(host, |node, _| node.source_counts(source)).expect("the source is there")
}

/// Queued events on the source's own host are counted like those on other hosts.
pub fn what_waits_in_a_queue_of_the_sources_host_is_dropped_when_its_sink_leaves<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[0], &video, queued(4));
    for number in 1..=6 {
        submit_frame(world, &hosts[0], from, 0, number);
    }
    let mut taken = crate::Taken::default();
    world.with(&hosts[0], |node, now| node.take(to, &mut taken, now)).expect("one was there");
    let counts = counts_of(world, &hosts[0], from);
    assert_eq!((counts.sent, counts.delivered, counts.dropped), (6, 1, 2), "three wait, two made room");
    world.with(&hosts[0], |node, now| node.leave_sink(to, now)).expect("it was there");
    let counts = counts_of(world, &hosts[0], from);
    assert_eq!((counts.sent, counts.delivered, counts.dropped, counts.lost), (6, 1, 5, 0));
}

/// The sink's host sends its report before the change that removes the sink.
pub fn a_sink_that_leaves_says_what_became_of_its_events<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, queued(16));
    for number in 1..=6 {
        submit_frame(world, &hosts[0], from, 0, number);
    }
    world.settle();
    let mut taken = crate::Taken::default();
    world.with(&hosts[1], |node, now| node.take(to, &mut taken, now)).expect("one was there");
    world.with(&hosts[1], |node, now| node.leave_sink(to, now)).expect("it was there");
    world.settle();
    let counts = counts_of(world, &hosts[0], from);
    assert_eq!((counts.sent, counts.delivered, counts.dropped, counts.lost), (6, 1, 5, 0));
}

/// No report will come for these events.
pub fn what_was_under_way_to_a_host_that_is_gone_is_lost<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    sink(world, &hosts[1], &video, called());
    let stays = sink(world, &hosts[2], &video, called());
    submit_frame(world, &hosts[0], from, 0, 1);
    world.quiet();
    world.kill(&hosts[1]);
    for number in 2..=6 {
        submit_frame(world, &hosts[0], from, 0, number);
    }
    world.detect();
    world.quiet();
    assert_eq!(numbers(world, &hosts[2], stays), (1..=6).collect::<Vec<_>>());
    let counts = counts_of(world, &hosts[0], from);
    // Some networks report the lost host at once; then no more events are sent there.
    assert_eq!((counts.delivered, counts.lost), (7, counts.sent - 7), "{counts:?}");
}
