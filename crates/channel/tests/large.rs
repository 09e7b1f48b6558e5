//! Large events over networks that lose frames, and from hosts that send false frames.

use qfabric_channel::testing::{EAGER, Memory, Settings, World};
use qfabric_channel::{
    Destination, EventType, Lane, Limits, Output, PROTOCOL, SinkCounts, SinkId, SinkSpec, SourceId, SourceSpec, Spec,
    Submission,
};
use qfabric_ecode::parse_formats;
use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Name};

/// A source of `h0`, and a sink of `h1`.
fn world(settings: Settings, capacity: u32) -> (Memory, Vec<Name>, SourceId, SinkId) {
    let mut world = Memory::new(Settings { hosts: 2, ..settings });
    let hosts = world.hosts();
    let channel = ChannelId::data("v".parse().expect("a name"));
    let types = parse_formats("struct one { int a; int b; };").expect("it compiles");
    let spec = Spec { types: types.into_iter().map(|format| EventType { format }).collect(), ..Spec::default() };
    let from = world.with(&hosts[0], |node, now| {
        node.create(&channel, spec, now).expect("created");
        node.source_subscribe(&channel, SourceSpec::default(), now).expect("a source")
    });
    world.settle();
    let to = world.with(&hosts[1], |node, now| {
        node.open(&channel, now).expect("opened");
        node.sink_subscribe(&channel, SinkSpec { capacity, ..SinkSpec::default() }, now).expect("a sink")
    });
    world.run_for(Nanos::from_millis(5_000));
    (world, hosts, from, to)
}

fn submit(world: &mut Memory, host: &Name, from: SourceId, bytes: usize, within: Option<Nanos>) -> u32 {
    let payload = vec![7; bytes];
    let sent = world.with(host, |node, now| {
        let deadline = within.map(|within| now + within);
        node.submit(from, &Submission { deadline, payload: &payload, ..Submission::default() }, now)
    });
    sent.expect("submitted").dropped
}

fn balanced(world: &Memory, host: &Name, sink: SinkId) -> SinkCounts {
    let counts = world.node(host).sink_counts(sink).expect("the sink is there");
    let SinkCounts { sent, delivered, filtered, dropped, late, lost, queued } = counts;
    assert_eq!(sent, delivered + filtered + dropped + late + lost + queued, "{counts:?}");
    counts
}

#[test]
fn an_event_with_a_lost_fragment_is_one_lost_event() {
    let settings = Settings { data_loss: 20, seed: 3, ..Settings::default() };
    let (mut world, hosts, from, to) = world(settings, EAGER);
    for _ in 0..60 {
        submit(&mut world, &hosts[0], from, 300_000, None);
        world.run_for(Nanos::from_millis(200));
    }
    world.quiet();
    let counts = balanced(&world, &hosts[1], to);
    assert_eq!(counts.sent, 60);
    assert!(counts.lost > 0 && counts.delivered > 30, "{counts:?}");
    let source = world.node(&hosts[0]).source_counts(from).expect("the source is there");
    assert_eq!((source.delivered, source.lost), (counts.delivered, counts.lost), "both know the same");
    let incomplete = world.node(&hosts[1]).counts().incomplete;
    assert!(incomplete > 0 && incomplete <= counts.lost, "{incomplete} of {}", counts.lost);
    assert!(world.delivered(&hosts[1]).iter().all(|event| event.payload == vec![7; 300_000]));
}

#[test]
fn what_finds_no_room_behind_what_waits_is_dropped_and_counted() {
    let (mut world, hosts, from, to) = world(Settings::default(), EAGER);
    let dropped: u32 = (0..10).map(|_| submit(&mut world, &hosts[0], from, Limits::EVENT, None)).sum();
    assert!((5..=7).contains(&dropped), "{} bytes wait, {dropped} events do not", Limits::WAITING);
    world.quiet();
    let counts = balanced(&world, &hosts[1], to);
    assert_eq!((counts.delivered, counts.lost), (10 - u64::from(dropped), 0));
    let source = world.node(&hosts[0]).source_counts(from).expect("the source is there");
    assert_eq!((source.sent, source.dropped), (10, u64::from(dropped)));
}

#[test]
fn an_event_whose_time_passes_while_it_waits_is_withdrawn_and_late_on_both_sides() {
    let settings = Settings { delay: (Nanos::from_millis(2), Nanos::from_millis(2)), ..Settings::default() };
    let (mut world, hosts, from, to) = world(settings, EAGER);
    submit(&mut world, &hosts[0], from, Limits::EVENT, Some(Nanos::from_millis(9)));
    submit(&mut world, &hosts[0], from, 100, None);
    world.quiet();
    let counts = balanced(&world, &hosts[1], to);
    assert_eq!((counts.sent, counts.delivered, counts.late, counts.lost), (2, 1, 1, 0));
    assert_eq!(world.node(&hosts[1]).counts().incomplete, 0, "it is late, not lost");
    let source = world.node(&hosts[0]).source_counts(from).expect("the source is there");
    assert_eq!((source.delivered, source.late), (1, 1));
}

#[test]
fn what_waits_for_a_host_that_is_gone_is_lost_and_others_go_on() {
    let (mut world, hosts, from, _) = world(Settings::default(), EAGER);
    submit(&mut world, &hosts[0], from, Limits::EVENT, None);
    world.kill(&hosts[1]);
    world.detect();
    world.quiet();
    let source = world.node(&hosts[0]).source_counts(from).expect("the source is there");
    assert_eq!((source.sent, source.lost), (1, 1));
    assert_eq!(submit(&mut world, &hosts[0], from, 8, None), 0);
    assert!(world.node(&hosts[0]).next_wakeup().is_none_or(|at| at.get() > 0), "nothing is asked of it any more");
}

#[test]
fn the_answer_to_a_ping_for_the_clock_makes_no_room_for_what_has_not_arrived() {
    let delay = (Nanos::from_millis(2), Nanos::from_millis(2));
    let settings = Settings { delay, data_delay: Nanos::from_millis(300), ..Settings::default() };
    let (mut world, hosts, from, _) = world(settings, EAGER);
    let channel = ChannelId::data("v".parse().expect("a name"));
    world.with(&hosts[0], |node, now| {
        node.sink_subscribe(&channel, SinkSpec { capacity: EAGER, ..SinkSpec::default() }, now).expect("a sink");
    });
    let back = world
        .with(&hosts[1], |node, now| node.source_subscribe(&channel, SourceSpec::default(), now).expect("a source"));
    world.run_for(Nanos::from_millis(5_000));
    submit(&mut world, &hosts[1], back, 100, None);
    world.run_for(Nanos::from_millis(310));
    assert!(!world.delivered(&hosts[0]).is_empty(), "so this host pings for the clock, every 100 ms at first");

    let (sent, bytes) = (20, 20_000);
    (0..sent).for_each(|_| _ = submit(&mut world, &hosts[0], from, bytes, None));
    world.delivered(&hosts[1]);
    world.run_for(Nanos::from_millis(550));
    let first = world.delivered(&hosts[1]).len();
    assert!(first > 0 && first * bytes <= Limits::UNDER_WAY as usize, "{first} arrived before the first answer");
    world.quiet();
    assert_eq!(first + world.delivered(&hosts[1]).len(), sent);
}

#[test]
fn the_counts_add_up_within_two_seconds_of_quiet_although_the_first_mark_is_lost() {
    let (mut world, hosts, from, to) = world(Settings::default(), EAGER);
    submit(&mut world, &hosts[0], from, 100, None);
    world.run_for(Nanos::from_millis(100));
    world.lose_data(1_000);
    submit(&mut world, &hosts[0], from, 100, None);
    world.run_for(Nanos::from_millis(1_600));
    world.lose_data(0);
    world.run_for(Nanos::from_millis(400));
    let source = world.node(&hosts[0]).source_counts(from).expect("the source is there");
    assert_eq!((source.sent, source.delivered, source.lost), (2, 1, 1));
    assert_eq!(balanced(&world, &hosts[1], to).lost, 1);
}

/// A frame with the prefix of `h0`'s frames and another body.
fn forged(world: &mut Memory, host: &Name, from: SourceId, kind: u8, body: &[u8]) -> Vec<u8> {
    let event = Submission { payload: &[0; 8], ..Submission::default() };
    let mut first = Vec::new();
    world.with(host, |node, now| {
        node.submit(from, &event, now).expect("submitted");
        while let Some(output) = node.poll() {
            if let Output::Send(Destination::Channel(_), _, frame) = output {
                first = node.frame(frame)[..10].to_vec();
            }
        }
    });
    assert_eq!(first[0], PROTOCOL);
    first[1] = kind;
    [&first[..], body].concat()
}

fn fragment(source: u32, number: u64, total: u32, at: u32, bytes: &[u8]) -> Vec<u8> {
    let numbers = [&source.to_le_bytes()[..], &number.to_le_bytes(), &total.to_le_bytes(), &at.to_le_bytes()].concat();
    [&numbers[..], bytes].concat()
}

#[test]
fn fragments_that_cannot_be_are_counted_and_keep_nobody_from_the_next_event() {
    let (mut world, hosts, from, to) = world(Settings::default(), EAGER);
    let (source, part) = (from.0, vec![1; Limits::FRAGMENT]);
    let most = 2 << 20;
    let bodies = [
        fragment(source, 90, 100, 0, &[]),              // empty
        fragment(source, 90, most, 0, &part),           // total above the limit
        fragment(source, 90, 1000, u32::MAX, &[1]),     // starts beyond the total
        fragment(source, 90, 100, 0, &[1; 101]),        // longer than the total
        fragment(source, 90, 1 << 20, 0, &[1; 40_000]), // longer than a fragment
        fragment(source, 90, 4, 0, &[255, 9, 0, 0]),    // complete, but not an event
        fragment(999, 90, 1 << 20, 0, &part),           // unknown source
        fragment(source, 90, 1 << 20, 0, &part),        // never continued
        fragment(source, 91, 1 << 20, 30_720, &part),   // the beginning is missing
    ];
    for body in bodies {
        let frame = forged(&mut world, &hosts[0], from, 12, &body);
        world.with(&hosts[1], |node, now| node.arrive(&hosts[0], Lane::Data, &frame, now));
    }
    let counts = world.node(&hosts[1]).counts();
    assert_eq!((counts.malformed, counts.unwelcome, counts.incomplete), (6, 1, 2));
    world.delivered(&hosts[1]);
    submit(&mut world, &hosts[0], from, 200_000, None);
    world.run_for(Nanos::from_millis(500));
    assert_eq!(world.delivered(&hosts[1]).len(), 1);
    world.quiet();
    balanced(&world, &hosts[1], to);
}

#[test]
fn an_event_that_does_not_go_on_is_given_up_after_a_while() {
    let (mut world, hosts, from, _) = world(Settings::default(), EAGER);
    let body = fragment(from.0, 90, 1 << 20, 0, &[1; 1000]);
    let frame = forged(&mut world, &hosts[0], from, 12, &body);
    world.with(&hosts[1], |node, now| node.arrive(&hosts[0], Lane::Data, &frame, now));
    world.run_for(Nanos::from_millis(4_000));
    assert_eq!(world.node(&hosts[1]).counts().incomplete, 0);
    world.run_for(Nanos::from_millis(2_000));
    assert_eq!(world.node(&hosts[1]).counts().incomplete, 1);
}
