//! Filters.

use super::*;
use crate::{Binding, Direction, FilterCommand, FilterError, FilterId, FilterSpec, Key, MemberId, Notice};

fn filter_id(channel: &ChannelId, direction: Direction, name: &str) -> FilterId {
    FilterId { channel: channel.clone(), direction, name: name.parse().expect("a name") }
}

fn text(id: FilterId, text: &str) -> FilterSpec {
    let types = vec!["frame".to_owned()];
    FilterSpec { id, sink: None, types, text: text.to_owned(), parameters: vec![] }
}

fn install<W: World>(world: &mut W, host: &Name, filter: &FilterSpec) {
    world.with(host, |node, _| node.install(filter)).unwrap_or_else(|error| panic!("{error}"));
}

/// The load balancer of 000 §4.2.3: the least loaded sink gets the event.
const LEAST_LOADED: &str = "
    struct input { int kind; int size; int sinks; struct { long load; long role; } sink[100]; };
    struct output { unsigned char chosen[100]; };
    int best = -1;
    for (int i = 0; i < input.sinks; i++)
        if (best < 0 || input.sink[i].load < input.sink[best].load) best = i;
    if (best < 0) return 0;
    output.chosen[best] = 1;
    return 1;";

/// An OUT-filter reads the attributes of all sinks, and decides which of them receive.
pub fn an_out_filter_chooses_by_what_sinks_say_of_themselves<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let load = |load| with_attributes(called(), &[("load", load)]);
    let busy = sink(world, &hosts[1], &video, load(90));
    let idle = sink(world, &hosts[2], &video, load(10));
    let here = sink(world, &hosts[0], &video, load(50));
    install(world, &hosts[0], &text(filter_id(&video, Direction::Out, "balance"), LEAST_LOADED));
    let sent = submit_frame(world, &hosts[0], from, 0, 0);
    assert_eq!((sent.remote, sent.local, sent.filtered), (1, 0, 2));
    let key: Key = "load".parse().expect("a key");
    world.with(&hosts[2], |node, now| node.set_sink_attribute(idle, key, Some(95), now)).expect("set");
    world.settle();
    let sent = submit_frame(world, &hosts[0], from, 0, 0);
    assert_eq!((sent.remote, sent.local, sent.filtered), (0, 1, 2));
    world.settle();
    assert_eq!(numbers(world, &hosts[1], busy), [0; 0]);
    assert_eq!(numbers(world, &hosts[2], idle), [1]);
    assert_eq!(numbers(world, &hosts[0], here), [2]);
}

/// An IN-filter decides which sinks of its host get an arriving event; it can be for a single sink.
pub fn an_in_filter_chooses_among_the_sinks_of_its_host<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let role = |role| with_attributes(called(), &[("role", role)]);
    let high = sink(world, &hosts[1], &video, role(2));
    let low = sink(world, &hosts[1], &video, role(0));
    let by_role = "
        struct input { int size; int sinks; struct { long role; } sink[8]; };
        struct output { unsigned char chosen[8]; };
        for (int i = 0; i < input.sinks; i++) output.chosen[i] = input.sink[i].role > 0 || input.size < 100;
        return 1;";
    install(world, &hosts[1], &text(filter_id(&video, Direction::In, "role"), by_role));
    let only = Some(MemberId { host: hosts[1].clone(), number: high.0 });
    let odd = FilterSpec { sink: only, ..text(filter_id(&video, Direction::In, "some"), "return input.kind != 7;") };
    install(world, &hosts[1], &odd);
    for (kind, size) in [(0, 10), (0, 1000), (7, 10)] {
        submit_frame(world, &hosts[0], from, kind, size);
    }
    world.quiet();
    let delivered = world.delivered(&hosts[1]);
    let of = |sink| delivered.iter().filter(|event| event.sink == sink).map(|event| event.number).collect::<Vec<_>>();
    assert_eq!((of(high), of(low)), (vec![1, 2], vec![1, 3]));
    assert_eq!((balanced(world, &hosts[1], high).filtered, balanced(world, &hosts[1], low).filtered), (1, 1));
}

/// With verdict 0 no sink gets the event, and no frame is sent. Closures can do the same.
pub fn a_filter_that_blocks_sends_nothing<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, called());
    let out = filter_id(&video, Direction::Out, "b");
    install(world, &hosts[0], &text(out.clone(), "return 0;"));
    assert_eq!(submit_frame(world, &hosts[0], from, 0, 0).filtered, 1);
    let choose = Box::new(|event: &crate::Event<'_>, _: crate::Candidates<'_>, chosen: &mut [bool]| {
        chosen.fill(event.payload[0] == 1);
    });
    world.with(&hosts[0], |node, _| node.install_closure(out.clone(), None, &[], choose)).expect("replaced");
    assert_eq!(submit_frame(world, &hosts[0], from, 0, 0).filtered, 1);
    assert_eq!(submit_frame(world, &hosts[0], from, 1, 0).remote, 1);
    world.with(&hosts[0], |node, _| node.remove_filter(&out)).expect("removed");
    assert_eq!(submit_frame(world, &hosts[0], from, 0, 0).remote, 1);
    world.settle();
    assert_eq!(numbers(world, &hosts[1], to), [3, 4]);
    let again = world.with(&hosts[0], |node, _| node.remove_filter(&out));
    assert_eq!(again, Err(FilterError::Unknown(out)));
}

/// A filter is replaced while events flow: no event is lost, each passes exactly one filter, parameters stay.
pub fn a_filter_is_replaced_between_two_events<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, called());
    let out = filter_id(&video, Direction::Out, "drop");
    let version = |mark: i32| {
        let body = format!(
            "struct input {{ int kind; int size; }}; struct output {{ int size; }};
             output.size = {mark}; return input.kind >= get_attribute(least);"
        );
        text(out.clone(), &body)
    };
    install(world, &hosts[0], &version(1));
    world.with(&hosts[0], |node, _| node.set_parameter(&out, "least", 5)).expect("it has it");
    let broken = world.with(&hosts[0], |node, _| node.install(&text(out.clone(), "return input.colour;")));
    assert!(matches!(broken, Err(FilterError::Text(_))), "{broken:?}");
    for round in 0..20 {
        if round == 10 {
            install(world, &hosts[0], &version(2));
        }
        submit_frame(world, &hosts[0], from, 5 - round % 2, 0);
    }
    let missing = world.with(&hosts[0], |node, _| node.set_parameter(&out, "most", 5)).unwrap_err();
    assert_eq!(missing.to_string(), "the filter has no parameter `most`; it has least");
    world.settle();
    let sizes: Vec<u8> =
        world.delivered(&hosts[1]).iter().filter(|event| event.sink == to).map(|event| event.payload[4]).collect();
    assert_eq!(sizes, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
}

/// A Q-filter: events of one channel set a parameter of a filter of another.
pub fn events_of_one_channel_turn_a_filter_of_another<W: World>(world: &mut W) {
    let (video, control) = (data("video"), data("control"));
    let hosts = everywhere(world, &video, &spec());
    everywhere(world, &control, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, called());
    let manager = source(world, &hosts[1], &control);
    let out = filter_id(&video, Direction::Out, "rate");
    install(world, &hosts[0], &text(out.clone(), "return input.kind >= get_attribute(least);"));
    let binding = Binding {
        filter: out.clone(),
        parameter: "least".parse().expect("a key"),
        channel: control.clone(),
        event_type: "frame".to_owned(),
        field: "size".to_owned(),
    };
    let bound = world.with(&hosts[0], |node, now| node.bind(&binding, now)).expect("bound");
    world.settle();
    assert_eq!(submit_frame(world, &hosts[0], from, 3, 0).remote, 1);
    submit_frame(world, &hosts[1], manager, 0, 4);
    world.settle();
    assert_eq!(world.with(&hosts[0], |node, _| node.parameter(&out, "least")), Ok(4));
    assert_eq!(submit_frame(world, &hosts[0], from, 3, 0).filtered, 1);
    world.with(&hosts[0], |node, now| node.leave_sink(bound, now)).expect("it was bound");
    world.settle();
    assert_eq!(submit_frame(world, &hosts[1], manager, 0, 0).remote, 0, "no sink is left");
    world.settle();
    assert_eq!(numbers(world, &hosts[1], to), [1]);
    let wrong = Binding { field: "colour".to_owned(), ..binding };
    let refused = world.with(&hosts[0], |node, now| node.bind(&wrong, now)).unwrap_err();
    assert!(refused.to_string().starts_with("events of type `frame` have no number `colour`;"), "{refused}");
}

/// Filters are shipped as text. Here every host lets only itself install and refuses other hosts' commands; commands to
/// itself are carried out.
pub fn filters_are_shipped_where_the_policy_lets_them<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let out = filter_id(&video, Direction::Out, "none");
    let order = FilterCommand::Install(text(out.clone(), "return 0;"));
    let to = [hosts[0].clone(), hosts[1].clone(), "nobody".parse().expect("a name")];
    let request = world.with(&hosts[0], |node, now| node.ship(&to, &order, now));
    world.settle();
    let answers: Vec<(Name, bool)> = world
        .notices(&hosts[0])
        .into_iter()
        .filter_map(|notice| match notice {
            Notice::Answered { request: of, host, result } if of == request => Some((host, result.is_ok())),
            _ => None,
        })
        .collect();
    assert_eq!(answers.len(), 3, "{answers:?}");
    assert!(answers.contains(&(hosts[0].clone(), true)) && answers.contains(&(hosts[1].clone(), false)));
    let refused = world.notices(&hosts[1]);
    assert!(refused.iter().any(|notice| matches!(notice, Notice::Forbidden { .. })), "{refused:?}");
    assert!(world.with(&hosts[1], |node, _| node.filters(&video).is_empty()));
    assert_eq!(world.with(&hosts[0], |node, _| node.filters(&video).len()), 1);
}

/// A filter that divides by zero blocks its events and is reported once.
pub fn a_filter_that_faults_lets_nothing_pass_and_says_so<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let to = sink(world, &hosts[1], &video, called());
    let out = filter_id(&video, Direction::Out, "divides");
    install(world, &hosts[0], &text(out.clone(), "return 100 / input.size;"));
    for size in [0, 0, 5] {
        submit_frame(world, &hosts[0], from, 0, size);
    }
    world.settle();
    assert_eq!(numbers(world, &hosts[1], to), [3]);
    let faults = |notice: &Notice| matches!(notice, Notice::FilterFaulted { id, .. } if *id == out);
    assert_eq!(world.notices(&hosts[0]).iter().filter(|notice| faults(notice)).count(), 1);
    let counts = world.with(&hosts[0], |node, _| node.filters(&video)[0].1);
    assert_eq!((counts.calls, counts.faults, counts.blocked), (3, 2, 2));
}

/// Sets the size, and blocks events of kind 7.
fn resize(size: i32) -> String {
    format!(
        "struct input {{ int kind; int size; }}; struct output {{ int size; }};
         output.size = {size}; return input.kind != 7;"
    )
}

/// The kinds and sizes of the frames that a sink received.
fn frames(delivered: &[super::super::Delivered], sink: crate::SinkId) -> Vec<(u64, i32)> {
    let size = |payload: &[u8]| i32::from_le_bytes(payload[4..8].try_into().expect("four bytes"));
    let own = delivered.iter().filter(|event| event.sink == sink);
    own.map(|event| (event.number, size(&event.payload))).collect()
}

/// An IN-filter for one sink changes or blocks that sink's copy only; other sinks get the event unchanged.
pub fn a_filter_for_one_sink_changes_the_event_for_that_sink_alone<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let sinks = [called(), called(), called()].map(|spec| sink(world, &hosts[1], &video, spec));
    let for_sink = |sink: crate::SinkId, name: &str, size: i32| {
        let only = Some(MemberId { host: hosts[1].clone(), number: sink.0 });
        FilterSpec { sink: only, ..text(filter_id(&video, Direction::In, name), &resize(size)) }
    };
    // The names of the single sinks' filters sort before the filter for all, which is nevertheless called first.
    install(world, &hosts[1], &for_sink(sinks[0], "a", 1));
    install(world, &hosts[1], &for_sink(sinks[1], "b", 2));
    let add = "struct input { int kind; int size; }; struct output { int size; };
               output.size = input.size + 100; return 1;";
    install(world, &hosts[1], &text(filter_id(&video, Direction::In, "z"), add));
    submit_frame(world, &hosts[0], from, 0, 9);
    submit_frame(world, &hosts[0], from, 7, 9);
    world.quiet();
    let delivered = world.delivered(&hosts[1]);
    assert_eq!(frames(&delivered, sinks[0]), [(1, 1)]);
    assert_eq!(frames(&delivered, sinks[1]), [(1, 2)]);
    assert_eq!(frames(&delivered, sinks[2]), [(1, 109), (2, 109)]);
    let filtered = sinks.map(|sink| balanced(world, &hosts[1], sink).filtered);
    assert_eq!(filtered, [1, 1, 0]);
}

/// The same at the source: a sink of another host and one of this host get copies of their own with the event's number,
/// and each copy is counted once.
pub fn an_out_filter_for_one_sink_changes_what_that_sink_is_sent_alone<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let there = [called(), called(), called()].map(|spec| sink(world, &hosts[1], &video, spec));
    let here = [called(), called()].map(|spec| sink(world, &hosts[0], &video, spec));
    for (name, host, sink, size) in
        [("a", &hosts[1], there[0], 1), ("b", &hosts[1], there[1], 2), ("c", &hosts[0], here[0], 3)]
    {
        let only = Some(MemberId { host: host.clone(), number: sink.0 });
        let filter = FilterSpec { sink: only, ..text(filter_id(&video, Direction::Out, name), &resize(size)) };
        install(world, &hosts[0], &filter);
    }
    let sent = submit_frame(world, &hosts[0], from, 0, 9);
    assert_eq!((sent.remote, sent.local, sent.filtered), (3, 2, 0));
    let sent = submit_frame(world, &hosts[0], from, 7, 9);
    assert_eq!((sent.remote, sent.local, sent.filtered), (1, 1, 3));
    world.quiet();
    let delivered = [world.delivered(&hosts[0]), world.delivered(&hosts[1])];
    assert_eq!(there.map(|sink| frames(&delivered[1], sink)), [vec![(1, 1)], vec![(1, 2)], vec![(1, 9), (2, 9)]]);
    assert_eq!(here.map(|sink| frames(&delivered[0], sink)), [vec![(1, 3)], vec![(1, 9), (2, 9)]]);
    for sink in there {
        assert_eq!(balanced(world, &hosts[1], sink).lost, 0);
    }
}

/// Keeps as many bytes behind a frame as its `kind` says.
const CROP: &str = "
    struct input { int kind; };
    struct output { int tail_size; };
    output.tail_size = input.kind;
    return 1;";

/// Keeps every other byte of the first 16.
const THIN: &str = "
    struct input { int tail_size; unsigned char tail[16]; };
    struct output { int tail_size; unsigned char tail[8]; };
    int i;
    for (i = 0; i < 16 && i < input.tail_size; i += 2) {
        output.tail[output.tail_size] = input.tail[i];
        output.tail_size++;
    }
    return 1;";

/// Appends a mark.
const MARK: &str = "
    struct input { int tail_size; unsigned char tail[64]; };
    struct output { int tail_size; unsigned char tail[65]; };
    int i;
    for (i = 0; i < 64 && i < input.tail_size; i++) output.tail[i] = input.tail[i];
    output.tail[i] = 33;
    output.tail_size = i + 1;
    return 1;";

/// Filters crop, thin and lengthen the tail of an event; an impossible length is a fault.
pub fn a_filter_changes_how_long_an_event_is<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let from = source(world, &hosts[0], &video);
    let [here, there] = [0, 1].map(|host| sink(world, &hosts[host], &video, called()));
    let marked = sink(world, &hosts[1], &video, called());
    let for_one = Some(MemberId { host: hosts[1].clone(), number: marked.0 });
    install(world, &hosts[1], &FilterSpec { sink: for_one, ..text(filter_id(&video, Direction::In, "mark"), MARK) });
    let out = filter_id(&video, Direction::Out, "shorten");
    install(world, &hosts[0], &text(out.clone(), CROP));
    let mut submit_tail = |kind, tail: &str| {
        let payload = [&frame(kind, 0)[..], tail.as_bytes()].concat();
        submit(world, &hosts[0], from, &Submission { payload: &payload, ..Submission::default() }).expect("submitted")
    };
    submit_tail(3, "abcdef");
    submit_tail(6, "abcdef");
    assert_eq!(submit_tail(7, "abcdef").filtered, 3);
    assert_eq!(submit_tail(-1, "").filtered, 3);
    install(world, &hosts[0], &text(out, THIN));
    let mut submit_tail = |tail: &str| {
        let payload = [&frame(0, 0)[..], tail.as_bytes()].concat();
        submit(world, &hosts[0], from, &Submission { payload: &payload, ..Submission::default() }).expect("submitted")
    };
    submit_tail("abcdefg");
    submit_tail("");
    world.quiet();
    let [at_source, elsewhere] = [0, 1].map(|host| world.delivered(&hosts[host]));
    let tails = |delivered: &[super::super::Delivered], sink| {
        let of_sink = delivered.iter().filter(|event| event.sink == sink);
        of_sink.map(|event| String::from_utf8_lossy(&event.payload[8..]).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(tails(&at_source, here), ["abc", "abcdef", "aceg", ""]);
    assert_eq!(tails(&elsewhere, there), ["abc", "abcdef", "aceg", ""]);
    assert_eq!(tails(&elsewhere, marked), ["abc!", "abcdef!", "aceg!", "!"]);
    let faults = world.notices(&hosts[0]).into_iter().filter_map(|notice| match notice {
        Notice::FilterFaulted { fault, .. } => Some(fault),
        _ => None,
    });
    assert_eq!(faults.collect::<Vec<_>>(), ["`output.tail_size` is 7, but must be between 0 and 6 for this event"]);
}

/// Two users of a host submit to one channel; the filter of one user does not stop the other user's events.
pub fn a_users_filter_acts_on_the_events_of_own_sources_alone<W: World>(world: &mut W) {
    let video = data("video");
    let hosts = everywhere(world, &video, &spec());
    let of = |user| crate::SourceSpec { user: Some(user), ..Default::default() };
    let sources = [1_000, 1_001]
        .map(|user| world.with(&hosts[0], |node, now| node.source_subscribe(&video, of(user), now)).expect("a source"));
    world.settle();
    sink(world, &hosts[1], &video, called());
    let stop = text(filter_id(&video, Direction::Out, "stop"), "return 0;");
    world.with(&hosts[0], |node, _| node.install_for(1_000, &stop)).expect("installed");
    let sent = sources.map(|source| submit_frame(world, &hosts[0], source, 0, 0).remote);
    assert_eq!(sent, [0, 1]);
    let of_all = text(filter_id(&video, Direction::In, "stop"), "return 0;");
    let refused = world.with(&hosts[0], |node, _| node.install_for(1_000, &of_all));
    assert!(matches!(refused, Err(FilterError::Channel(crate::Error::Forbidden { .. }))), "{refused:?}");
}
