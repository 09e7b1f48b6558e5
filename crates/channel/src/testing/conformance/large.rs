//! Events that are longer than a frame.

use qfabric_types::Nanos;

use super::*;
use crate::{Direction, FilterId, FilterSpec, Limits};

/// A `frame` of this number of bytes in total.
fn large(number: i32, bytes: usize) -> Vec<u8> {
    let mut payload = frame(number, bytes as i32).to_vec();
    payload.extend((payload.len()..bytes).map(|at| (at / 7 + number as usize) as u8));
    payload
}

fn submit_large<W: World>(world: &mut W, host: &Name, from: SourceId, number: i32, bytes: usize) -> Sent {
    let payload = large(number, bytes);
    submit(world, host, from, &Submission { payload: &payload, ..Submission::default() }).expect("submitted")
}

/// Waits until a host has received `events` more events, or much time has passed.
fn wait_for<W: World>(world: &mut W, host: &Name, events: usize) -> Vec<crate::testing::Delivered> {
    let mut all = Vec::new();
    for _ in 0..600 {
        all.extend(world.delivered(host));
        if all.len() >= events {
            break;
        }
        world.run_for(Nanos::from_millis(50));
    }
    all
}

/// Events up to 1 MiB arrive; small events of the same source arrive after them, and none is lost.
pub fn large_events_arrive_whole_and_in_order<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    for host in &hosts[..3] {
        sink(world, host, &video, called());
    }
    let sizes =
        [Limits::EVENT, 8, Limits::WHOLE + 1, 100, Limits::FRAGMENT, 300_000, Limits::WHOLE, Limits::EVENT - 1, 9];
    for (number, bytes) in sizes.into_iter().enumerate() {
        let sent = submit_large(world, &hosts[0], from, number as i32, bytes);
        assert_eq!((sent.remote, sent.local, sent.dropped), (2, 1, 0));
    }
    for host in &hosts[..3] {
        let delivered = wait_for(world, host, sizes.len());
        let lengths: Vec<_> = delivered.iter().map(|event| event.payload.len()).collect();
        assert_eq!(lengths, sizes, "{host}");
        for (number, event) in delivered.iter().enumerate() {
            assert_eq!(event.number, 1 + number as u64);
            assert!(event.payload == large(number as i32, sizes[number]), "the bytes of event {number} at {host}");
        }
    }
    world.quiet();
    let counts = world.with(&hosts[0], |node, _| node.source_counts(from)).expect("the source is there");
    let all = 3 * sizes.len() as u64;
    assert_eq!((counts.sent, counts.delivered, counts.lost), (all, all, 0));
}

/// The refusal names both numbers. The quality plane accepts no large events.
pub fn an_event_above_the_limit_is_refused_with_both_numbers<W: World>(world: &mut W) {
    let hosts = everywhere(world, &data("video"), &spec());
    let from = source(world, &hosts[0], &data("video"));
    let payload = vec![0; Limits::EVENT + 1];
    let refused = submit(world, &hosts[0], from, &Submission { payload: &payload, ..Submission::default() });
    let said = refused.expect_err("it is too long").to_string();
    assert!(said.contains("1048577 bytes") && said.contains("the limit is 1048576 bytes"), "{said}");
}

/// The source waits; every accepted event arrives.
pub fn a_blocking_channel_loses_nothing_of_events_of_1_mib<W: World>(world: &mut W) {
    const EVENTS: i32 = 20;
    let video = data("video");
    let pressure = Pressure::Block { patience: Nanos::from_millis(10_000) };
    let hosts = everywhere(world, &video, &spec_with(pressure));
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, queued(200));
    let (mut sent, mut taken) = (0, Vec::new());
    for _ in 0..4_000 {
        if sent == EVENTS && taken.len() == EVENTS as usize {
            break;
        }
        let payload = large(sent, Limits::EVENT);
        let event = Submission { payload: &payload, ..Submission::default() };
        match if sent < EVENTS { Some(submit(world, &hosts[0], from, &event)) } else { None } {
            Some(Ok(_)) => sent += 1,
            Some(Err(SubmitError::WouldBlock { .. })) | None => {
                world.run_for(Nanos::from_millis(10));
                taken.extend(take_all(world, &hosts[1], to));
            }
            Some(Err(other)) => panic!("{other}"),
        }
    }
    assert!(taken.iter().enumerate().all(|(number, payload)| *payload == large(number as i32, Limits::EVENT)));
    assert_eq!((sent, taken.len()), (EVENTS, EVENTS as usize));
    world.quiet();
    let counts = balanced(world, &hosts[1], to);
    assert_eq!((counts.delivered, counts.lost, counts.dropped), (EVENTS as u64, 0, 0));
}

/// The source withdraws an event whose deadline passes while it waits: it is late at the source and at the sink, and no
/// event is lost.
pub fn a_large_event_whose_time_passes_while_it_waits_is_late<W: World>(world: &mut W) {
    const EVENTS: i32 = 3;
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, called());
    world.quiet();
    let mut passed_over = 0;
    for number in 0..EVENTS {
        let payload = large(number, Limits::EVENT);
        let sent = world.with(&hosts[0], |node, now| {
            let deadline = Some(now + Nanos::from_millis(3));
            node.submit(from, &Submission { deadline, payload: &payload, ..Submission::default() }, now)
        });
        passed_over += u64::from(sent.expect("its time has not passed").dropped);
    }
    submit_large(world, &hosts[0], from, EVENTS, 8);
    world.quiet();
    let delivered = numbers(world, &hosts[1], to);
    assert_eq!(delivered.last(), Some(&(1 + EVENTS as u64)), "the event behind it arrives");
    let counts = balanced(world, &hosts[1], to);
    assert_eq!((counts.lost, counts.dropped, counts.delivered), (0, 0, delivered.len() as u64));
    let source = world.with(&hosts[0], |node, _| node.source_counts(from)).expect("the source is there");
    assert_eq!((source.sent, source.late, source.lost), (1 + EVENTS as u64, counts.late + passed_over, 0));
    assert_eq!(source.delivered + source.late, source.sent);
}

/// OUT-filters see the event before it is split, IN-filters after it is assembled.
pub fn filters_see_the_whole_of_a_large_event<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, called());
    let filter = |direction, text: &str| FilterSpec {
        id: FilterId { channel: video.clone(), direction, name: "f".parse().expect("a name") },
        sink: None,
        types: vec!["frame".to_owned()],
        text: text.to_owned(),
        parameters: vec![],
    };
    let out = "struct input { int kind; int tail_size; }; return input.tail_size > 100000;";
    let into = "struct input { int tail_size; }; struct output { int tail_size; };
                output.tail_size = input.tail_size / 2; return input.tail_size < 900000;";
    world.with(&hosts[0], |node, _| node.install(&filter(Direction::Out, out))).expect("it compiles");
    world.with(&hosts[1], |node, _| node.install(&filter(Direction::In, into))).expect("it compiles");
    for (number, bytes) in [50_000, 400_008, Limits::EVENT].into_iter().enumerate() {
        submit_large(world, &hosts[0], from, number as i32, bytes);
    }
    let delivered = wait_for(world, &hosts[1], 1);
    assert_eq!(delivered.iter().map(|event| event.payload.len()).collect::<Vec<_>>(), [200_008]);
    assert!(delivered[0].payload == large(1, 400_008)[..200_008]);
    world.quiet();
    let counts = balanced(world, &hosts[1], to);
    assert_eq!((counts.sent, counts.delivered, counts.filtered), (2, 1, 1), "the first was not sent");
}

/// A new sink's welcome does not overtake events that its source has under way to other sinks of the host.
pub fn a_sink_that_joins_while_a_large_event_is_under_way_costs_nobody_an_event<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let first = sink(world, &hosts[1], &video, called());
    for number in 0..3 {
        submit_large(world, &hosts[0], from, number, Limits::EVENT);
    }
    let second = sink(world, &hosts[1], &video, called());
    submit_large(world, &hosts[0], from, 3, 100_000);
    world.quiet();
    let delivered = world.delivered(&hosts[1]);
    let of = |sink| delivered.iter().filter(|event| event.sink == sink).map(|event| event.number).collect::<Vec<_>>();
    assert_eq!(of(first), [1, 2, 3, 4]);
    assert_eq!(of(second).last(), Some(&4));
    let counts = [first, second].map(|sink| balanced(world, &hosts[1], sink));
    assert_eq!(counts.map(|counts| counts.lost), [0, 0]);
}
