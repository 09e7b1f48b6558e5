//! How many channels a user makes active in a time.

use super::*;

#[test]
fn a_user_who_opens_ever_new_channels_is_refused_and_others_are_not() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    let cycle = |user: User<'_>, number: usize| {
        let name = format!("channel-{number}");
        user.create(&name)?;
        host.fabric.close(user.peer, &name.parse().unwrap(), user.lease)
    };
    let refused = (0..1_000_000).find_map(|number| cycle(alice, number).err()).unwrap();
    assert!(refused.message.contains("has opened 1024 channels"), "{refused:?}");
    bob.create("video").unwrap();
    (0..2_000).for_each(|number| cycle(root, number).unwrap());
    alice.open("video").expect("it is open here already");
}

#[test]
fn a_user_who_joins_and_leaves_without_end_is_refused_and_further_sinks_are_free() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    bob.create("video").unwrap();
    alice.open("video").unwrap();
    let cycle = || {
        let sink = alice.sink("video")?;
        host.fabric.leave_sink(alice.peer, sink)
    };
    let refused = (0..1_000_000).find_map(|_| cycle().err()).unwrap();
    assert!(refused.message.contains("no sink here"), "{refused:?}");
    bob.sink("video").unwrap();
    (0..2_000).for_each(|_| cycle().expect("the channel has a sink here"));
}

/// A binding has a sink.
#[test]
fn a_user_who_binds_and_leaves_without_end_is_refused() {
    let host = Host::start(Vec::new());
    let alice = host.user(ALICE);
    alice.create("video").unwrap();
    alice.create("levels").unwrap();
    let (watched, request) = watch_of(alice, "levels");
    let cycle = || {
        let bound = host.fabric.bind(alice.peer, watched.clone(), &request)?;
        host.fabric.leave_sink(alice.peer, SinkId(bound.number))
    };
    let refused = (0..1_000_000).find_map(|_| cycle().err()).unwrap();
    assert!(refused.message.contains("no sink here"), "{refused:?}");
}

/// A program waits for a channel of another one by trying to open it again and again.
#[test]
fn attempts_that_are_refused_cost_nothing() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    for _ in 0..2_000 {
        assert_eq!(code(alice.open("video")), Some("no_such_channel".to_owned()));
        assert!(alice.sink("video").is_err_and(|problem| problem.code != "channel_limit"));
    }
    bob.create("video").unwrap();
    alice.open("video").unwrap();
    alice.sink("video").unwrap();
}
