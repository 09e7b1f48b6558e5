//! Filters of users and of root: rights, limits, suspension, names.

use qfabric_types::api::channel::HostAnswer;

use super::*;

fn guard() -> FilterId {
    FilterId { channel: "video".parse().unwrap(), direction: Direction::In, name: "guard".parse().unwrap() }
}

/// The other host would believe that this host's root replaces its filter.
#[test]
fn a_user_replaces_no_filter_that_root_installed_on_another_host() {
    let host = Host::start(Vec::new());
    let alice = host.user(ALICE);
    alice.create("video").unwrap();
    let beta = HostAnswer { host: "beta".parse().unwrap(), refused: None, kernel_path: false };
    host.fabric.owned.installed_by_root(&guard(), std::slice::from_ref(&beta));
    let sink = alice.sink("video").unwrap().0.to_string();
    let (lease, code, to) = (Some(alice.lease), "return 1;".to_owned(), FilterScope::Hosts(vec![beta.host]));
    let request = FilterRequest { lease, code, sink: Some(sink), to, ..FilterRequest::default() };
    let problem = alice.fabric.install(alice.peer, guard(), &request).map(drop).unwrap_err();
    assert!(problem.code == "channel_forbidden" && problem.message.contains("root on host beta"), "{problem:?}");
}

#[test]
fn a_filter_that_root_has_replaced_is_roots() {
    let host = Host::start(Vec::new());
    let (alice, root) = (host.user(ALICE), host.user(0));
    alice.create("video").unwrap();
    root.open("video").unwrap();
    let sink = alice.sink("video").unwrap();
    let install = || alice.filter(Direction::In, "guard", "return 1;", Some(sink));
    install().unwrap();
    let request = FilterRequest { code: "return 0;".into(), ..FilterRequest::default() };
    root.fabric.install(root.peer, guard(), &request).map(drop).unwrap();
    assert_eq!(code(install()), forbidden());
    host.fabric.end_filters(alice.lease);
    let filters = host.fabric.network.look(|node| node.filters(&guard().channel));
    assert!(filters.iter().any(|(id, _)| *id == guard()), "it does not end with the user's connection");
    root.fabric.remove_filter(root.peer, &guard(), &FilterScope::Here).map(drop).unwrap();
    assert_eq!(code(install()), None);
}

const DOUBLE: &str = "struct input { int number; }; struct output { int number; };
                      output.number = 2 * input.number; return 1;";

#[test]
fn what_a_user_does_to_events_for_an_own_sink_no_other_sink_sees() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    alice.create("video").unwrap();
    [bob, root].iter().for_each(|user| user.open("video").unwrap());
    let source = alice.source("video").unwrap();
    let sinks = [alice, bob, root].map(|user| user.sink("video").unwrap());
    bob.filter(Direction::In, "in", DOUBLE, Some(sinks[1])).unwrap();
    bob.filter(Direction::Out, "out", "return input.number != 3;", Some(sinks[1])).unwrap();
    assert_eq!(alice.submit(source, 2), 3);
    assert_eq!(alice.submit(source, 3), 2);
    assert_eq!(sinks.map(|sink| root.take(sink)), [vec![2, 3], vec![4], vec![2, 3]]);
    assert_eq!(code(bob.filter(Direction::In, "other", DOUBLE, Some(sinks[0]))), Some("no_such_member".to_owned()));
}

#[test]
fn a_filter_for_all_is_for_the_channels_creator_and_root() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    alice.create("video").unwrap();
    [bob, root].iter().for_each(|user| user.open("video").unwrap());
    let (sources, sink) = ([alice, bob].map(|user| user.source("video").unwrap()), root.sink("video").unwrap());
    let refused = bob.filter(Direction::In, "stop", "return 0;", None).unwrap_err();
    assert_eq!(refused.code, "channel_forbidden");
    assert!(refused.message.contains(&BOB.to_string()) && refused.next_step.contains("creator"), "{refused:?}");
    bob.filter(Direction::Out, "own", "return 0;", None).unwrap();
    assert_eq!(
        [(alice, 0), (bob, 1)].map(|(user, of)| user.submit(sources[of], 1)),
        [1, 0],
        "it stops bob's events alone"
    );
    alice.filter(Direction::In, "double", DOUBLE, None).unwrap();
    alice.submit(sources[0], 5);
    assert_eq!(root.take(sink), [1, 10]);
    root.filter(Direction::Out, "stop", "return 0;", None).unwrap();
    assert_eq!(alice.submit(sources[0], 1), 0);
}

#[test]
fn whoever_created_a_channel_that_has_ended_does_not_decide_for_the_next_one() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    alice.fabric.close(alice.peer, &"video".parse().unwrap(), alice.lease).unwrap();
    bob.create("video").unwrap();
    alice.open("video").unwrap();
    assert_eq!(code(alice.filter(Direction::In, "stop", "return 0;", None)), forbidden());
    assert_eq!(code(bob.filter(Direction::In, "stop", "return 1;", None)), None);
}

#[test]
fn filters_of_one_user_leave_room_for_those_of_others() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    let install = |user: User<'_>, number: usize| {
        user.filter(Direction::Out, &format!("{}.{number}", user.lease), "return 1;", None)
    };
    let most = (0..).find(|number| install(bob, *number).is_err()).unwrap();
    assert_eq!((most, code(install(bob, most))), (8, Some("channel_limit".to_owned())));
    assert_eq!(code(install(bob, 0)), None, "a filter is replaced");
    assert_eq!(code(install(alice, 0)), None);
}

#[test]
fn the_filters_of_a_user_on_a_channel_share_a_limit_of_instructions_and_roots_do_not() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    alice.create("video").unwrap();
    [bob, root].iter().for_each(|user| user.open("video").unwrap());
    let sink = bob.sink("video").unwrap();
    let problem = bob.filter(Direction::In, "a", &long(1_000_000), Some(sink)).unwrap_err();
    assert!(problem.message.contains("instructions, the limit is 200000"), "{problem:?}");
    let install = |user: User<'_>, name: &str| user.filter(Direction::Out, name, &long(5_000), None);
    let taken = (0..).find(|number| install(bob, &format!("b{number}")).is_err()).unwrap();
    assert!((2..5).contains(&taken), "{taken}");
    let problem = install(bob, "more").unwrap_err();
    assert_eq!(problem.code, "channel_limit");
    let limit = "200000 is the limit for a user's filters";
    assert!(problem.message.contains("your other filters") && problem.message.contains(limit), "{problem:?}");
    assert!(problem.next_step.contains("channels.max_filter_instructions"), "{problem:?}");
    assert_eq!(code(install(bob, "b0")), None, "a filter is replaced");
    let other = bob.filter(Direction::In, "in", &long(5_000), Some(sink));
    assert_eq!(code(other), None, "the other direction has other events");
    assert!(install(alice, "alice").is_ok() && (0..8).all(|number| install(root, &format!("r{number}")).is_ok()));
    let id = FilterId { channel: "video".parse().unwrap(), direction: Direction::Out, name: "b0".parse().unwrap() };
    bob.fabric.remove_filter(bob.peer, &id, &FilterScope::Here).unwrap();
    assert_eq!(code(install(bob, "more")), None, "a filter that has ended gives its instructions back");
}

/// Alice's filter executes more instructions than her limit allows, because of an event of Bob's. It drops Bob's next
/// events, is called for Carol's, and no event passes it without a call. The limit is so small that the suspension
/// lasts for minutes.
#[test]
fn a_suspended_filter_still_protects_and_drops_the_events_of_the_sender_that_caused_it_alone() {
    let protects = "struct input { int number; }; long i; long s; \
                    for (i = 0; i < 5000 && i < input.number; i++) s += i; return input.number != 3;";
    for direction in [Direction::Out, Direction::In] {
        let host = Host::with(ChannelsConfig { max_filter_instructions_per_second: 1_000, ..Default::default() });
        let (alice, bob, carol) = (host.user(ALICE), host.user(BOB), host.user(CAROL));
        alice.create("video").unwrap();
        [bob, carol].iter().for_each(|user| user.open("video").unwrap());
        let sink = alice.sink("video").unwrap();
        let (of_bob, of_carol) = (bob.source("video").unwrap(), carol.source("video").unwrap());
        alice.filter(direction, "protects", protects, None).unwrap();
        [5_000, 1, 3].iter().for_each(|number| _ = bob.submit(of_bob, *number));
        [3, 2].iter().for_each(|number| _ = carol.submit(of_carol, *number));
        assert_eq!(alice.take(sink), [5_000, 2], "{direction:?}");
        let shown = &host.fabric.show(&"video".parse().unwrap()).unwrap().filters[0];
        assert_eq!((shown.suspended, shown.calls, shown.skipped), (true, 3, 2));
        assert_eq!(host.fabric.report().filters.skipped, 2);
    }
}

#[test]
fn the_filters_of_a_user_above_the_limit_per_second_are_suspended_and_those_of_others_are_not() {
    let config = ChannelsConfig { max_filter_instructions_per_second: 1_000, ..Default::default() };
    let host = Host::with(config);
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    let sink = alice.sink("video").unwrap();
    let (of_alice, of_bob) = (alice.source("video").unwrap(), bob.source("video").unwrap());
    let all = "struct input { int number; }; long i; long s; for (i = 0; i < 10000; i++) s += i; \
               return input.number != 3;";
    alice.filter(Direction::Out, "all", all, None).unwrap();
    bob.filter(Direction::Out, "own", "struct input { int number; }; return input.number != 3;", None).unwrap();
    assert_eq!([alice.submit(of_alice, 1), alice.submit(of_alice, 1)], [1, 0], "called once, then suspended");
    assert_eq!([bob.submit(of_bob, 1), bob.submit(of_bob, 1)], [1, 0], "called until he has caused as much");
    alice.filter(Direction::Out, "all", all, None).unwrap();
    assert_eq!(alice.submit(of_alice, 1), 0, "it does not help to install the filter again");
    assert_eq!(alice.take(sink), [1, 1]);
    let shown = host.fabric.show(&"video".parse().unwrap()).unwrap().filters;
    let states: Vec<_> = shown.iter().map(|filter| (filter.suspended, filter.skipped)).collect();
    assert_eq!(states, [(true, 1), (false, 0)]);
    let counts = host.fabric.report().filters;
    assert_eq!((counts.suspensions, counts.skipped), (1, 3));
}

#[test]
fn filters_of_root_have_no_limit_per_second() {
    let config = ChannelsConfig { max_filter_instructions_per_second: 1_000, ..Default::default() };
    let host = Host::with(config);
    let root = host.user(0);
    root.create("video").unwrap();
    root.sink("video").unwrap();
    let source = root.source("video").unwrap();
    root.filter(Direction::Out, "all", &format!("{} && 0;", long(10_000).trim_end_matches(';')), None).unwrap();
    assert_eq!([root.submit(source, 1), root.submit(source, 2)], [0, 0]);
}

/// The other host would believe that this host asks: the filter may be root's, or of a user there.
#[test]
fn a_user_changes_no_filter_of_another_host_that_no_connection_here_installed() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    let id = FilterId { channel: "video".parse().unwrap(), direction: Direction::Out, name: "guard".parse().unwrap() };
    let beta = FilterScope::Hosts(vec!["beta".parse().unwrap()]);
    bob.source("video").unwrap();
    bob.filter(Direction::Out, "guard", "return 1;", None).unwrap(); // of this name, but here
    assert_eq!(code(bob.fabric.remove_filter(bob.peer, &id, &beta).map(drop)), forbidden());
    let set = ParameterRequest { parameters: [("limit".to_owned(), 1)].into(), to: beta };
    assert_eq!(code(bob.fabric.parametrize(bob.peer, &id, &set).map(drop)), forbidden());
}
